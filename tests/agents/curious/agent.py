"""Curious: asks people what it does not know, and ships what they choose."""

from __future__ import annotations

from tests.agents.signoff.tools import Ship
from twelvefold import Agent, AskHuman

agent = Agent(tools=[Ship, AskHuman], people=["refund-ops", "ann", "#desk"])
