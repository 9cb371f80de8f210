"""Mortal: a task that says `die` ends the process that works on it, each time."""

from __future__ import annotations

from twelvefold import Agent, to

agent = Agent(tools=[], delivery=[to.log("mortal")])
