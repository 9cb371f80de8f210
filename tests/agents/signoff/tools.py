"""One Write that is always asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from tests.agents.notes.tables import NoteRow
from twelvefold import Task, Verdict, Write, ask
from twelvefold.verdict import Risk

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Ship(Write[str]):
    """Ship an item. Use when the order is complete."""

    item: str = Field(examples=["a box of pears"])
    why: str = Field(default="it is due", examples=["It is due today"])
    risk: Risk = Field(default="medium", examples=["medium"])
    people: str = Field(default="ann@example.com, Ben@example.com", examples=["ann@example.com"])

    def approval(self, task: Task) -> Verdict:
        """Somebody always decides."""
        return ask(self.people, self.why, risk=self.risk)

    def about(self) -> str:
        """The item."""
        return self.item

    def write(self, db: Session) -> str:
        """A row for what was shipped."""
        db.add(NoteRow(text=self.item, task_id=""))
        db.flush()
        return self.item
