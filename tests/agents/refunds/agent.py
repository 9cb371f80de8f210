"""Refunds: pays money back through a fake service."""

from __future__ import annotations

from twelvefold import Agent, on

from .tools import Pay, PayAgain, PayAndLook, PayIfAllowed

agent = Agent(
    tools=[Pay, PayAgain, PayAndLook, PayIfAllowed],
    hosts=["127.0.0.1"],
    triggers=[
        on.api(lambda text: "refund" in text.lower()),
        on.email("refunds@in.example.com", allow=("*@example.com",)),
    ],
)
