"""One Read and one Write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from sqlalchemy import func, select

from twelvefold import AUTO, Ctx, Read, Task, Verdict, Write, ask, deny

from .tables import NoteRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Noted(BaseModel):
    """A note as it was kept."""

    id: int
    text: str


class CountNotes(Read[int]):
    """Count the notes of a topic. Use when you want to know how many there are."""

    topic: str = Field(examples=["milk"])

    def run(self, ctx: Ctx) -> int:
        """How many notes contain the topic."""
        with ctx.db() as db:
            return db.scalar(select(func.count()).where(NoteRow.text.contains(self.topic))) or 0


class KeepNote(Write[Noted]):
    """Keep a note. Use when something should be remembered."""

    text: str = Field(max_length=5000, examples=["Buy milk"])

    def approval(self, task: Task) -> Verdict:
        """Notes that shout are asked about, notes that curse are refused."""
        if "damn" in self.text:
            return deny("no cursing")
        return ask("#notes", "it shouts") if self.text.isupper() else AUTO

    def write(self, db: Session) -> Noted:
        """Keep it."""
        row = NoteRow(text=self.text, task_id="")
        db.add(row)
        db.flush()
        return Noted(id=row.id, text=row.text)
