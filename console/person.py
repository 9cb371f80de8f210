"""What a person does with a mail that asks: reads it, opens the link, types the word. For the demo, over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from html import unescape
from urllib.parse import urlencode
from urllib.request import Request, urlopen

LINK = re.compile(r"^(https?://\S+/a/\S+)$", re.MULTILINE)
WORD = re.compile(r"asks for this word: (\w+)")
HIDDEN = re.compile(r"type='hidden' name='(\w+)' value='([^']*)'")


@dataclass(frozen=True, slots=True)
class Question:
    """What a mail asks: where to decide, and the word that only the mail holds."""

    link: str
    word: str


def text_of(message: EmailMessage) -> str:
    """The plain text of a mail."""
    body = message.get_body(("plain",))
    return "" if body is None else str(body.get_content())


def read(message: EmailMessage) -> Question | None:
    """The question in a mail; None when there is no link or no word in it."""
    text = text_of(message)
    link, word = LINK.search(text), WORD.search(text)
    return Question(link[1], word[1]) if link and word else None


def look(question: Question) -> tuple[int, dict[str, str]]:
    """Open the link: the status, and the hidden fields that say what the page shows; none when it has no form."""
    with urlopen(question.link, timeout=10) as answer:
        found = HIDDEN.findall(answer.read().decode())
        return answer.status, {name: unescape(value) for name, value in found}


def approve(question: Question, hidden: Mapping[str, str]) -> int:
    """Send the form of the page that was shown, with the word; the status."""
    form = urlencode({"decision": "approve", "word": question.word, **hidden}).encode()
    with urlopen(Request(question.link, form), timeout=10) as answer:
        return int(answer.status)
