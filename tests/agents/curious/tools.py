"""One Write that as many people sign as its argument says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from tests.agents.notes.tables import NoteRow
from twelvefold import Task, Verdict, Write, ask
from twelvefold.verdict import Risk

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Sign(Write[str]):
    """Sign for an item. Use when it is ready."""

    item: str = Field(examples=["a box of pears"])
    risk: Risk = Field(default="low", examples=["medium"])
    quorum: int = Field(default=1, examples=[2])
    target: str = Field(default="refund-ops", examples=["ann"])

    def approval(self, task: Task) -> Verdict:
        """Somebody always decides."""
        return ask(self.target, "it is ready", risk=self.risk, quorum=self.quorum)

    def write(self, db: Session) -> str:
        """A row for what was signed."""
        db.add(NoteRow(text=self.item, task_id=""))
        db.flush()
        return self.item
