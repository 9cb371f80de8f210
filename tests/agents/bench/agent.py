"""Looks as often as its message says, then is done. Its message is `COUNT SIZE SECONDS [TOGETHER]`."""

from __future__ import annotations

from pydantic import Field

from twelvefold import Agent, Budget, Ctx, Read


class Look(Read[str]):
    """Look at a thing. Use when the message says so."""

    number: int = Field(ge=0, examples=[1])
    size: int = Field(ge=0, examples=[10])

    def run(self, ctx: Ctx) -> str:
        """A result of that size."""
        return "x" * self.size


agent = Agent(tools=[Look], budget=Budget(decisions=100))
