"""Desk: is written to in Slack, and by whatever else a test sends."""

from __future__ import annotations

from tests.agents.signoff.tools import Ship
from twelvefold import Agent, AskHuman, Ignore, Message, on


def read_parcel(payload: dict[str, object]) -> Message | Ignore:
    """A parcel that is on its way is nothing to do; one without a number cannot be read."""
    if payload.get("state") == "moving":
        return Ignore("on_its_way")
    return Message(text=f"parcel {payload['number']}", sender="parcels")


agent = Agent(
    tools=[Ship, AskHuman],
    people=["ann"],
    triggers=[on.slack(), on.slack(command="/ship"), on.webhook("parcels", type="parcel", read=read_parcel)],
)
