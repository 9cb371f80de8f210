"""Notes: keeps what it is told."""

from __future__ import annotations

from twelvefold import Agent, Budget, on, to

from .tools import CountNotes, KeepNote

agent = Agent(
    tools=[CountNotes, KeepNote],
    budget=Budget(decisions=50),
    delegates=["refunds"],
    triggers=[on.api()],
    delivery=[to.log("notes"), to.email("notes@example.org", when="done")],
)
