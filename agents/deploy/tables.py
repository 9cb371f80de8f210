"""What was deployed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, UniqueConstraint, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """This agent's tables."""


class DeploymentRow(Base):
    """One release of one repository that was taken into the deployments, once."""

    __tablename__ = "deployments"
    __table_args__ = (UniqueConstraint("repository", "tag"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    repository: Mapped[str]
    tag: Mapped[str]
    summary: Mapped[str]
    recorded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())
