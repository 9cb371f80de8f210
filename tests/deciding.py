"""A tool whose rule a test chooses, and a task that waits for people to decide about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tests.agents.notes.tables import NoteRow
from tests.hands import Script, change, once
from tests.harness import Fleet, fleet
from twelvefold import Message, Task, Verdict, Write
from twelvefold.events import ApprovalMoved
from workers.ids import uuid7
from workers.store import sweeps
from workers.store.inbox import Entry

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

ANN, BEN, CLEO, DAN = (f"{name}@shop.example" for name in ("ann", "ben", "cleo", "dan"))
Rule = Callable[["Send", Task], Verdict]


class Send(Write[str]):
    """Send so many items. Use when they are due."""

    item: str = Field(default="a box of pears", examples=["a box of pears"])
    count: int = Field(default=5, ge=1, le=100, examples=[5])

    def write(self, db: Session) -> str:
        """A row for what was sent."""
        db.add(NoteRow(text=f"{self.count} x {self.item}", task_id=""))
        db.flush()
        return self.item


def sending(rule: Rule) -> type[Send]:
    """The tool under this rule."""

    class Ruled(Send):
        """Send so many items. Use when they are due."""

        def approval(self, task: Task) -> Verdict:
            return rule(self, task)

    Ruled.__spec__ = Send.__spec__
    return Ruled


@dataclass
class Waits:
    """A task that waits, and hands for those who decide."""

    fleet: Fleet
    task: str

    @property
    def row(self) -> dict[str, Any]:
        """The newest question."""
        asked = "SELECT * FROM approvals WHERE task_id = %(task)s ORDER BY asked DESC LIMIT 1"
        return self.fleet.run.db.rows(asked, {"task": self.task})[0]

    @property
    def sent(self) -> list[str]:
        """What was sent."""
        return [row["text"] for row in self.fleet.run.db.rows("SELECT text FROM notes ORDER BY id")]

    def says(self, by: str, approved: bool = True, **more: Any) -> Any:
        """Somebody decides, with a session where nothing else is said."""
        return self.fleet.operate.decide(self.task, self.row["call"], approved=approved, by=by, **more)

    def over(self, name: str) -> None:
        """A time of the call is over, by the state and by the row; a sweep finds it."""
        with self.fleet.run.db.connection() as connection:
            connection.execute(
                "UPDATE agent_tasks SET due_at = clock_timestamp() - interval '1 s',"
                " state = jsonb_set(state, %(path)s, to_jsonb(clock_timestamp() - interval '1 s'))"
                " WHERE id = %(id)s AND state #>> %(path)s IS NOT NULL",
                {"id": self.task, "path": f"{{call,{name}}}"},
            )
            if name == "due":
                connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        assert sweeps.make_due(self.fleet.run.db) == 1

    def moves(self) -> list[ApprovalMoved]:
        """What became of the questions, as it stands in the log."""
        return [event for event in self.fleet.events(self.task) if isinstance(event, ApprovalMoved)]


@contextmanager
def waits(
    database: Any, rule: Rule, *, script: Script | None = None, asked_by: str | None = None, **more: Any
) -> Iterator[Waits]:
    """A task that asks under this rule; `asked_by` is who opened it, `script` its model."""
    with fleet(database, script or once(Send()), **more) as f:
        change(f, "signoff", tools=[sending(rule)], delivery=[])
        entry = Entry(tenant="t1", source="test", key=str(uuid7()), kind="message", sender=asked_by)
        task = f.intake.open(f.run.registry["signoff"], entry, Message(text="send it")).task_id
        assert task is not None
        assert f.drain(task) == "waiting"
        yield Waits(f, task)
