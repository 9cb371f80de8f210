"""The card: what a person sees of a call before deciding about it, in a mail and on the page, from one value.

It has two zones. The facts are written by code and show every argument that would be executed. What the agent says is
text that nobody vouches for: short and without links. Where something had to be cut the card says so, and no one can
approve from it. Argument text is quoted line by line, so that it cannot pass for anything else on the card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from delivery import render
from delivery.plain import plain
from delivery.render import Way
from twelvefold.markup import to_yaml
from twelvefold.text import one_line, reveal, shorten
from twelvefold.verdict import AtExpiry, Risk, people

LONGEST_ARGUMENTS = 8_000
LONGEST_SAYING = 500
THEN: dict[AtExpiry, str] = {
    "deny": "after that it counts as expired",
    "park": "after that it waits for an operator",
    "allow": "after that it runs all the same, as it only looks",
}
_SCHEME = re.compile(r"(?<=\w):(?=[^\s\d])")
_DOT = re.compile(r"(?<=\S)[.\u3002\uff0e\uff61](?=[^\W\d])")


class Card(BaseModel):
    """One question as it is shown. `args` is the call as canonical JSON, as it would be executed."""

    model_config = ConfigDict(frozen=True)

    agent: str
    about: str | None
    task: str
    call: int
    asked: int
    tool: str
    args: str
    says: str
    target: str
    risk: Risk
    deadline: datetime
    digest: str
    tainted: int = 0
    quorum: int = 1
    all_of: tuple[str, ...] = ()
    four_eyes: bool = False
    editor: str = ""
    preview: Any = None
    at_expiry: AtExpiry = "deny"
    escalated: str = ""
    """Who may decide too, since nobody else has."""

    @property
    def title(self) -> str:
        """What is asked, on one line."""
        about = f" {reveal(self.about)}" if self.about else ""
        return one_line(f"{self.agent}: approve {self.tool}?{about}")

    @property
    def arguments(self) -> str:
        """Every argument as YAML; what no one would see is written out. Only line feeds break its lines."""
        return shorten(self._all_arguments, LONGEST_ARGUMENTS)

    @property
    def previewed(self) -> str:
        """What the call would do, as its tool says; empty where it does not."""
        return shorten(self._all_preview, LONGEST_ARGUMENTS)

    @property
    def cut(self) -> bool:
        """Whether something is missing, so that nobody can approve from this card."""
        return max(len(self._all_arguments), len(self._all_preview)) > LONGEST_ARGUMENTS

    @property
    def _all_preview(self) -> str:
        return "" if self.preview is None else to_yaml(_revealed(self.preview))

    @property
    def by_mail(self) -> bool:
        """Whether a link may decide. At high risk it takes the word, and a second person."""
        return not self.cut and (self.risk != "high" or self.quorum > 1)

    @property
    def word(self) -> bool:
        """Whether a link needs the word from the mail."""
        return self.by_mail and self.risk != "low"

    @property
    def _all_arguments(self) -> str:
        found = json.loads(self.args)
        return to_yaml(_revealed(found)) if found else "(none)\n"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The other facts, each on one line, with their names."""
        found = [
            ("Agent", self.agent),
            ("About", one_line(reveal(self.about)) if self.about else ""),
            ("Tool", self.tool),
            ("Risk", self.risk),
            ("Beware", f"event {self.tainted} is text of a sender nobody vouches for" if self.tainted else ""),
            ("May decide", ", ".join(people(self.target)) or "whoever may approve for this agent"),
            ("And now", ", ".join(people(self.escalated))),
            ("Edited by", one_line(reveal(self.editor)) if self.editor else ""),
            ("Needed", self._needed),
            ("Until", f"{self.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC; {THEN[self.at_expiry]}"),
            ("Call", f"{self.call} of task {self.task}"),
        ]
        return tuple((name, text) for name, text in found if text)

    @property
    def _needed(self) -> str:
        parts = [f"the approval of {self.quorum} people"] if self.quorum > 1 else []
        parts += [f"one of {', '.join(people(group))}" for group in self.all_of]
        parts += ["nobody who asked for this or edited it"] if self.four_eyes else []
        return "; ".join(parts)

    @property
    def saying(self) -> str:
        """What the agent says, without anything that a reader's program would make a link of."""
        return shorten(unlinked(one_line(self.says, LONGEST_SAYING)), LONGEST_SAYING)


def letter_source(card: Card, link: str | None, word: str | None) -> str:
    """The card as the Markdown of a letter. `link`: the page; `word`: what it asks for. All links but that one are
    broken.
    """
    shown = [("Arguments", unlinked(card.arguments))]
    if card.previewed:
        shown.append(("What it would do", unlinked(card.previewed)))
    return render.question(
        f"{card.agent} asks whether it may go on. Nothing happens before you decide.",
        [(name, unlinked(text) if name == "About" else text) for name, text in card.facts],
        shown,
        ("The agent says (nobody checked this)", card.saying or "nothing", ()),
        list(_ways(card, link, word)),
        "To decide",
    )


def letter_text(card: Card, link: str | None, word: str | None) -> str:
    """The same as the text of a mail."""
    return plain(letter_source(card, link, word))


def _ways(card: Card, link: str | None, word: str | None) -> Iterator[Way]:
    if card.cut:
        yield Way("It is too long for a letter and had to be cut, so this cannot be approved by mail.")
    elif link is not None and not card.by_mail:
        says = "The risk is high: a link is not enough to decide. This page only shows what is asked:"
        yield Way(says, link, "Look at it")
    elif link is not None:
        yield Way("Open this page; opening it decides nothing:", link, "Decide on the page")
        if word is not None:
            yield Way(f"The page asks for this word: {word}")
    which = f"{card.task} {card.call}"
    yield Way("On the command line:", commands=(f"twelvefold approve {which}", f"twelvefold deny {which}"))
    yield Way(f"Through the API: POST /thread/{card.task}/response with call_id {card.call}")


def unlinked(text: str) -> str:
    """The text with `[.]`, `[:]` and `[at]` where programs would find an address of the web or of a person."""
    return _DOT.sub("[.]", _SCHEME.sub("[:]", text)).replace("@", "[at]")


def _revealed(value: Any) -> Any:
    if isinstance(value, str):
        return reveal(value)
    if isinstance(value, dict):
        return {reveal(key): _revealed(member) for key, member in value.items()}
    return [_revealed(item) for item in value] if isinstance(value, list) else value
