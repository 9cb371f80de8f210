"""What was pushed, and what was deployed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, UniqueConstraint, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """This agent's tables."""


class CommitRow(Base):
    """One commit that was pushed to the default branch, once each."""

    __tablename__ = "commits"
    __table_args__ = (UniqueConstraint("tenant", "repository", "sha"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    repository: Mapped[str]
    sha: Mapped[str]
    author: Mapped[str]
    message: Mapped[str]
    pushed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())


class DeploymentRow(Base):
    """One run of the pipeline that took a release into an environment."""

    __tablename__ = "deployments"
    __table_args__ = (UniqueConstraint("tenant", "run"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    repository: Mapped[str]
    tag: Mapped[str]
    environment: Mapped[str]
    run: Mapped[str]
    summary: Mapped[str]
    recorded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())
