"""A question as a person sees it, in a mail and on the page, from one value: what the agent wants to know, from whom,
how it can be answered and until when. Everything but the frame is the agent's text: quoted, and without links.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from delivery import render
from delivery.plain import plain
from delivery.render import Way
from twelvefold.questions import AskHuman
from twelvefold.text import one_line, reveal
from twelvefold.verdict import people

from .card import unlinked

URGENT = {"low": "", "normal": "", "high": "Urgent: "}


class Asking(BaseModel):
    """One question. `args` is the call `ask_human` as canonical JSON, `target` the addresses of those who are asked."""

    model_config = ConfigDict(frozen=True)

    agent: str
    about: str | None
    task: str
    call: int
    asked: int
    args: str
    target: str
    deadline: datetime
    escalated: str = ""
    """Who may answer too, since nobody else has."""

    @property
    def question(self) -> AskHuman:
        """The call itself."""
        return AskHuman.model_validate_json(self.args)

    @property
    def title(self) -> str:
        """What is asked, on one line."""
        about = f" ({reveal(self.about)})" if self.about else ""
        asked = unlinked(reveal(self.question.reason))
        return one_line(f"{URGENT[self.question.urgency]}{self.agent} asks{about}: {asked}", 120)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What code knows of it, each on one line, with their names."""
        found = [
            ("Agent", self.agent),
            ("About", one_line(reveal(self.about)) if self.about else ""),
            ("May answer", ", ".join(people(self.target)) or "whoever may write to this agent"),
            ("And now", ", ".join(people(self.escalated))),
            ("Until", f"{self.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC; after that the agent goes on without you"),
            ("Call", f"{self.call} of task {self.task}"),
        ]
        return tuple((name, text) for name, text in found if text)

    @property
    def context(self) -> tuple[tuple[str, str], ...]:
        """What the agent says one has to know, without links."""
        found = self.question.context
        return tuple((one_line(unlinked(reveal(fact.name))), unlinked(reveal(fact.value))) for fact in found)

    @property
    def expected(self) -> str:
        """How it can be answered."""
        options = ", ".join(unlinked(reveal(option)) for option in self.question.options)
        return f"one of these: {options}" if options else "in your own words"


def letter_source(asking: Asking, link: str | None) -> str:
    """The question as the Markdown of a letter; `link` is its page. All links but that one are broken."""
    answer = Way(f"Answer {asking.expected}.")
    return render.question(
        f"{asking.agent} has a question. Your answer is passed on; it permits nothing.",
        [(name, unlinked(text) if name == "About" else text) for name, text in asking.facts],
        (),
        ("The agent asks (nobody checked this)", unlinked(reveal(asking.question.reason)), asking.context),
        [answer, *_ways(asking, link)],
        "To answer",
    )


def letter_text(asking: Asking, link: str | None) -> str:
    """The same as the text of a mail."""
    return plain(letter_source(asking, link))


def _ways(asking: Asking, link: str | None) -> Iterator[Way]:
    if link is not None:
        yield Way("Open this page and answer there; opening it answers nothing:", link, "Answer on the page")
    yield Way("On the command line:", commands=(f"twelvefold respond {asking.task} TEXT --call {asking.call}",))
    api = f'POST /thread/{asking.task}/response with type "response" and call_id {asking.call}'
    yield Way(f"Through the API: {api}")
