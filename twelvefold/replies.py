"""A model's reply to one decision: a call, several READ calls, or a rejection that teaches."""

from __future__ import annotations

from .agent import Agent
from .errors import Rejection
from .ports import ModelReply
from .schema import read_call
from .text import shorten
from .tool import Tool

HINT = "Answer with exactly one tool call and no prose."


def read_reply(agent: Agent, reply: ModelReply) -> list[Tool[object]]:
    """The decided calls: one of any kind, or several that only read. Raises Rejection for everything else."""
    if reply.refusal:
        raise Rejection(
            f"You refused: {shorten(reply.refusal, 200)} If there is nothing to do, call nothing_to_do.", kind="refusal"
        )
    if reply.finish == "content_filter":
        raise Rejection(
            "The reply was withheld by a content filter. Choose another way, or call nothing_to_do.", kind="refusal"
        )
    if reply.finish == "length":
        raise Rejection("The reply was cut off. Send a shorter call.", kind="cut_off")
    if not reply.calls:
        text = (reply.text or "").strip()
        if not text:
            raise Rejection(f"The reply was empty. {HINT}", kind="empty")
        raise Rejection(f"The reply was prose: {shorten(text, 120)!r}. {HINT} To end, call done.", kind="prose")
    calls = [read_call(agent.menu, call.name, call.arguments) for call in reply.calls]
    if len(calls) > 1 and any(call.__spec__.kind != "read" for call in calls):
        first = reply.calls[0]
        raise Rejection(
            f"{len(calls)} calls at once; only calls that read may come together. The first was "
            f"{first.name}({shorten(first.arguments, 200)}). {HINT}",
            kind="several",
        )
    return calls
