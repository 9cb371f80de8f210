"""Curious: asks people what it does not know, and signs for what they allow."""

from __future__ import annotations

from twelvefold import Agent, AskHuman

from .tools import Sign

agent = Agent(tools=[Sign, AskHuman], people=["refund-ops", "ann", "#desk"])
