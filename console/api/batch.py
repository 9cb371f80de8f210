"""`POST /approvals`: decisions about many calls in one request, each judged by itself and told by itself.

What needs four eyes is left to its own page and its own request: nobody waves it through in a list.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from console.edge import Edge
from triggers.problem import Problem
from workers.store import threads

from .bodies import Batch, Decided, Nothing
from .look import own
from .request import Answer, Call
from .respond import decision


def decide(held: Edge, call: Call) -> Answer:
    """Approve or reject many calls. The answer tells of each, in order, the `status` that it would have got alone."""
    call.asks(Nothing)
    return Answer(202, {"decisions": [_told(held, call, one) for one in call.read(Batch).decisions]})


def _told(held: Edge, call: Call, one: Decided) -> dict[str, Any]:
    named = {"thread_id": str(one.thread_id), "call_id": one.call_id}
    try:
        found = _decided(held, call, one)
    except Problem as problem:
        return {**named, "status": problem.status, "title": problem.title, "detail": problem.detail, **problem.members}
    return {**named, "status": found.status, **found.document}


def _decided(held: Edge, call: Call, one: Decided) -> Answer:
    body = {"type": "approval", **one.model_dump(mode="json", exclude={"thread_id"})}
    alone = replace(call, path={"id": str(one.thread_id)}, body=body)
    row = own(held, alone)
    asked = threads.asked(held.db, row["id"], row["tenant"], 0)
    if any(question["four_eyes"] for question in asked if question["call"] == one.call_id):
        raise Problem(403, "Four eyes", "Decide this one by itself: POST /thread/{id}/response.", code="four_eyes")
    return decision(held, alone, row, asked)
