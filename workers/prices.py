"""What models cost, from the file `prices.json` beside this module; settings may add to it and override it."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

MILLION = 1_000_000


class Price(BaseModel):
    """USD for a million tokens that go in, and for a million that come out."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    tokens_in: Decimal = Field(default=Decimal(0), ge=0, alias="in")
    tokens_out: Decimal = Field(default=Decimal(0), ge=0, alias="out")

    def of(self, tokens_in: int, tokens_out: int) -> Decimal:
        """What so many tokens cost, in USD."""
        return (self.tokens_in * tokens_in + self.tokens_out * tokens_out) / MILLION


@cache
def listed() -> dict[str, Price]:
    """The prices in the file, by model id."""
    found = json.loads(Path(__file__).with_name("prices.json").read_text(encoding="utf-8"))
    return {name: Price.model_validate(price) for name, price in found["models"].items()}
