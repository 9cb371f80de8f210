"""`/arrivals`: what reached us, what became of it and why; and to read anew what could not be read."""

from __future__ import annotations

from console.again import NotAgain, again
from console.edge import Edge
from console.sources import sources
from triggers.problem import Problem
from workers.store import threads

from .bodies import Nothing, Reached
from .request import Answer, Call


def listed(held: Edge, call: Call) -> Answer:
    """The newest first, without what they say: accepted, ignored, failed or unclaimed, and why."""
    asked = call.asks(Reached)
    _for_all(call)
    rows = threads.arrivals(held.db, call.token.tenant, state=asked.state, source=asked.source, most=asked.limit)
    return Answer(200, {"arrivals": [{name: row[name] for name in SHOWN} for row in rows]})


def retry(held: Edge, call: Call) -> Answer:
    """Read it with the agents of now: one that failed to be read, or that nobody listened to."""
    call.read(Nothing)
    call.asks(Nothing)
    _for_all(call)
    id = str(call.path["id"])
    if not (id.isascii() and id.isdecimal() and len(id) < 19):
        raise Problem(404, "No such arrival", "An arrival has a number. See them: GET /arrivals")
    try:
        verdict = again(held.db, held.intake, sources(held.settings), int(id), call.token.tenant)
    except NotAgain as refused:
        raise Problem(refused.code, "Not read anew", str(refused)) from None
    if verdict.task_id is not None:
        held.bell.ring(verdict.task_id, "arrivals")
    became = {"outcome": verdict.outcome, "reason": verdict.reason, "thread_id": verdict.task_id}
    return Answer(202, became)


def _for_all(call: Call) -> None:
    if call.token.agents is not None:
        raise Problem(403, "Not for some agents only", "Anything may have reached us; use a token for all agents.")


SHOWN = ("id", "received_at", "source", "type", "key", "kind", "state", "reason", "task_id", "cleaned")
