"""What a run may spend, what it has spent, and when it goes round in circles."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .errors import DeclarationError

Dimension = Literal["decisions", "tokens", "usd", "active", "deadline"]
SAME_CALLS = 3
"""So many equal calls in a row count as stagnation."""


class Usage(BaseModel):
    """Spent so far: decisions and tokens are counts, usd is money, active_ms milliseconds of work (waiting is free)."""

    model_config = ConfigDict(frozen=True)

    decisions: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)
    active_ms: int = 0

    def plus(self, other: Usage) -> Usage:
        """The sum, dimension by dimension."""
        return Usage(
            decisions=self.decisions + other.decisions,
            tokens=self.tokens + other.tokens,
            usd=self.usd + other.usd,
            active_ms=self.active_ms + other.active_ms,
        )


class Budget(BaseModel):
    """The most a run may spend. A limit forbids the next decision; a decision already paid for is carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decisions: int = Field(default=20, ge=1)
    tokens: int = Field(default=200_000, ge=1)
    usd: Decimal = Field(default=Decimal("1.00"), ge=0)
    active: timedelta = timedelta(seconds=120)
    deadline: timedelta | None = None
    """Wall time from the opening of the run, waiting included; None for none."""

    def refuse_absurd(self, agent: str) -> None:
        """Raise DeclarationError where a limit is beyond what `numbers` allows: 100 decisions, 3600 active seconds."""
        if self.decisions > 100:
            raise DeclarationError(f"{agent}: {self.decisions} decisions a run is over 100. Split the agent instead.")
        if self.active > timedelta(hours=1):
            raise DeclarationError(f"{agent}: {self.active} of active time is over one hour. Waiting is not counted.")

    def exhausted(self, used: Usage, times: int = 1) -> tuple[Dimension, str, str] | None:
        """The first dimension of `times` this budget that is used up, with what was used and the limit as text."""
        active_ms = int(self.active.total_seconds() * 1000)
        rows: tuple[tuple[Dimension, Decimal | int, Decimal | int], ...] = (
            ("decisions", used.decisions, self.decisions),
            ("tokens", used.tokens, self.tokens),
            ("usd", used.usd, self.usd),
            ("active", used.active_ms, active_ms),
        )
        for name, spent, limit in rows:
            if spent >= limit * times and spent > 0:
                return name, str(spent), str(limit * times)
        return None

    def share(self, used: Usage, own: Budget) -> Budget:
        """What a child gets: the least of its own budget and half of what this run has left."""
        left_ms = max(0, int(self.active.total_seconds() * 1000) - used.active_ms)
        return own.model_copy(
            update={
                "decisions": max(1, min(own.decisions, (self.decisions - used.decisions) // 2)),
                "tokens": max(1, min(own.tokens, (self.tokens - used.tokens) // 2)),
                "usd": max(Decimal(0), min(own.usd, (self.usd - used.usd) / 2)),
                "active": min(own.active, timedelta(milliseconds=left_ms // 2)),
            }
        )

    def as_usage(self) -> Usage:
        """The whole budget as if it were spent: what a parent is charged when a child is born."""
        return Usage(
            decisions=self.decisions,
            tokens=self.tokens,
            usd=self.usd,
            active_ms=int(self.active.total_seconds() * 1000),
        )


def stagnation(fingerprints: tuple[str, ...]) -> str | None:
    """What repeats, in words, when the last calls are equal three times or alternate A-B-A-B; else None."""
    last = fingerprints[-SAME_CALLS:]
    if len(last) == SAME_CALLS and len(set(last)) == 1:
        return f"the same call {SAME_CALLS} times: {last[0]}"
    four = fingerprints[-4:]
    if len(four) == 4 and four[0] == four[2] and four[1] == four[3] and four[0] != four[1]:
        return f"two calls in turn: {four[0]} and {four[1]}"
    return None
