"""What a person does with a mail that asks: reads it, opens the link, types the word. For the demo, over real HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import EmailMessage
from html import unescape
from urllib.parse import urlencode
from urllib.request import Request, urlopen

LINK = re.compile(r"^(https?://\S+/a/\S+)$", re.MULTILINE)
WORD = re.compile(r"asks for this word: (\w+)")
DIGEST = re.compile(r"name='digest' value='([^']*)'")


@dataclass(frozen=True, slots=True)
class Question:
    """What a mail asks: where to decide, and the word that only the mail holds."""

    link: str
    word: str


def read(message: EmailMessage) -> Question | None:
    """The question in a mail; None when there is no link or no word in it."""
    text = message.get_content()
    link, word = LINK.search(text), WORD.search(text)
    return Question(link[1], word[1]) if link and word else None


def look(question: Question) -> tuple[int, str]:
    """Open the link: the status, and the digest of what the page shows; empty when it has no form."""
    with urlopen(question.link, timeout=10) as answer:
        found = DIGEST.search(answer.read().decode())
        return answer.status, unescape(found[1]) if found else ""


def approve(question: Question, digest: str) -> int:
    """Send the form of the page that was shown, with the word; the status."""
    form = urlencode({"decision": "approve", "digest": digest, "word": question.word}).encode()
    with urlopen(Request(question.link, form), timeout=10) as answer:
        return int(answer.status)
