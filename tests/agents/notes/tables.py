"""Where notes are kept."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """This agent's tables."""


class NoteRow(Base):
    """One note."""

    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[str]
    text: Mapped[str]
