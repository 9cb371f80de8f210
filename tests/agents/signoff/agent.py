"""Signoff: ships what two people may sign off by mail."""

from __future__ import annotations

from twelvefold import Agent, to

from .tools import Ship

agent = Agent(tools=[Ship], delivery=[to.email("ann@example.com")])
