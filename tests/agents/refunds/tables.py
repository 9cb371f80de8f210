"""What was paid."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """This agent's tables."""


class RefundRow(Base):
    """One refund; the key is the business fact, and it is there once."""

    __tablename__ = "refunds"
    key: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[str]
    amount: Mapped[Decimal]
