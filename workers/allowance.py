"""How much of a model the fleet may use: the limits of its account, and what may be spent in a day."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

FREE = (float("inf"), 1.0)
"""The bucket of a dimension without a limit."""


class Limits(BaseModel):
    """What the account of the model may be asked for; None: as much as one likes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_second: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_second: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)

    def buckets(self) -> list[tuple[float, float]]:
        """(what it holds, what runs off a second) for each dimension, in the order of the table."""
        return [
            FREE if most is None else (max(1.0, most / 10), (most - max(1.0, most / 10)) / seconds or most / seconds)
            for most, seconds in (
                (self.requests_per_second, 1), (self.requests_per_minute, 60),
                (self.tokens_per_second, 1), (self.tokens_per_minute, 60),
            )
        ]  # fmt: skip


class Daily(BaseModel):
    """What a scope may spend on models in a day (UTC) in each tenant; None: as much as its tasks may."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: Decimal | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=1)
