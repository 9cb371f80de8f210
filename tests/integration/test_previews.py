"""Previews: what a tool says it would do, as a step of its own before a person is asked, and again before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import Field

from tests.agents.notes.tables import NoteRow
from tests.asked import SECRET, URL, Asked, Mailbox
from tests.deciding import ANN, BEN, Waits
from tests.hands import change, once
from tests.harness import fleet
from twelvefold import DESTRUCTIVE, Effect, Preview, Task, ToolError, Verdict, Write, ask
from twelvefold.canonical import call_digest
from twelvefold.events import Failed, Previewed
from workers.operate import Refused


@dataclass
class Shelf:
    """What the tools look at: what stands there, as often as they looked."""

    rows: list[str] = field(default_factory=lambda: ["pears", "plums"])
    looked: int = 0
    broken: bool = False

    def look(self, few: int) -> Preview:
        """What would be dropped."""
        self.looked += 1
        if self.broken:
            raise ToolError("The shelf cannot be seen.")
        return Preview(shown={"drops": self.rows[:few]}, fingerprint=",".join(self.rows))


SHELF = Shelf()


class DropRows(Write[int], needs={DESTRUCTIVE}):
    """Drop rows. Use when they are no longer needed."""

    few: int = Field(default=1, examples=[1])

    def approval(self, task: Task) -> Verdict:
        """Ann or Ben."""
        return ask(f"{ANN}, {BEN}", "they are old")

    def dry_run(self, ctx: Any) -> Preview:
        """Which rows."""
        return SHELF.look(self.few)

    def write(self, db: Any) -> int:
        """A note for what was dropped."""
        db.add(NoteRow(text=f"dropped {self.few}", task_id=""))
        db.flush()
        return self.few


class DropOutside(Effect[int], needs={DESTRUCTIVE}):
    """Drop rows outside. Use when they are no longer needed."""

    few: int = Field(default=1, examples=[1])

    def approval(self, task: Task) -> Verdict:
        """Ann or Ben."""
        return ask(f"{ANN}, {BEN}", "they are old")

    def dry_run(self, ctx: Any) -> Preview:
        """Which rows."""
        return SHELF.look(self.few)

    def run(self, ctx: Any) -> int:
        """Count it."""
        return self.few

    def record(self, result: int, db: Any) -> None:
        """A note for what was dropped."""
        db.add(NoteRow(text=f"dropped {self.few}", task_id=""))


@pytest.fixture(autouse=True)
def shelf() -> Shelf:
    """A shelf as it was."""
    SHELF.__init__()  # type: ignore[misc]
    return SHELF


@contextmanager
def dropping(database: Any, call: Any = None, **more: Any) -> Iterator[Waits]:
    """A task that would drop something."""
    call = call or DropRows()
    with fleet(database, once(call), **more) as f:
        change(f, "signoff", tools=[type(call)], delivery=[])
        task = f.open("signoff")
        f.drain(task)
        yield Waits(f, task)


def test_a_preview_is_a_step_before_the_question_and_part_of_what_is_approved(
    fresh_database: Any, shelf: Shelf
) -> None:
    with dropping(fresh_database) as w:
        assert w.fleet.kinds(w.task)[-3:] == ["Decided", "Previewed", "ApprovalAsked"] and shelf.looked == 1
        args, verdict = '{"few":1}', w.fleet.one("SELECT verdict::text FROM approvals")
        bound = (w.task, w.row["call"], "drop_rows", args, verdict)
        assert w.row["digest"] == call_digest(*bound, '{"drops":["pears"]}') != call_digest(*bound)
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["dropped 1"]


def test_the_card_shows_the_preview_in_the_mail_and_on_the_page(fresh_database: Any) -> None:
    with dropping(fresh_database, public_url=URL, link_secrets=(SECRET,)) as w:
        page = Asked(w.fleet, w.task, Mailbox())
        page.deliver()
        assert "What it would do:" in page.text(ANN) and "pears" in page.text(ANN)
        assert "What it would do" in page.get(page.path(ANN)).text and "pears" in page.get(page.path(ANN)).text


@pytest.mark.parametrize("call", [DropRows(), DropOutside()], ids=["write", "effect"])
def test_what_changed_since_it_was_shown_is_shown_again_and_not_done(
    fresh_database: Any, shelf: Shelf, call: Any
) -> None:
    with dropping(fresh_database, call) as w:
        first = w.row["digest"]
        shelf.rows = ["cherries"]
        w.says(ANN)
        assert w.fleet.drain(w.task) == "waiting"
        assert w.sent == [] and [moved.to for moved in w.moves()] == ["approved", "stale"]
        assert w.moves()[-1].reason == "what the preview showed has changed"
        shown = [event.shown for event in w.fleet.events(w.task) if isinstance(event, Previewed)]
        assert shown == [{"drops": ["pears"]}, {"drops": ["cherries"]}] and w.row["digest"] != first
        with pytest.raises(Refused):
            w.says(ANN, digest=first)
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["dropped 1"]


def test_a_preview_that_cannot_be_read_again_lets_nothing_begin(fresh_database: Any, shelf: Shelf) -> None:
    with dropping(fresh_database) as w:
        w.says(ANN)
        shelf.broken = True
        assert w.fleet.drain(w.task) == "done"
        assert w.sent == [] and w.row["state"] == "stale"
        assert [event.message for event in w.fleet.events(w.task) if isinstance(event, Failed)] == [
            "The shelf cannot be seen."
        ]


def test_a_tool_that_cannot_say_what_it_would_do_is_not_asked_about(fresh_database: Any, shelf: Shelf) -> None:
    shelf.broken = True
    with dropping(fresh_database) as w:
        assert "ApprovalAsked" not in w.fleet.kinds(w.task) and w.fleet.row(w.task)["status"] == "done"


def test_edited_arguments_get_a_preview_of_their_own_and_are_asked_about_anew(fresh_database: Any) -> None:
    with dropping(fresh_database) as w:
        assert w.says(ANN, edited='{"few":2}').state == "edited"
        assert w.fleet.drain(w.task) == "waiting" and w.sent == []
        shown = [event.shown for event in w.fleet.events(w.task) if isinstance(event, Previewed)]
        assert shown[-1] == {"drops": ["pears", "plums"]}
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["dropped 2"]
