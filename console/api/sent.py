"""The handler that shows what a model was sent."""

from __future__ import annotations

from console.edge import Edge
from console.sent import Gone, sent
from triggers.problem import Problem

from .bodies import Nothing
from .look import own
from .request import Answer, Call


def prompt(held: Edge, call: Call) -> Answer:
    """`GET /thread/{id}/prompt/{seq}`: the request of that event as it was sent, and its prompt files."""
    call.asks(Nothing)
    row = own(held, call)
    seq = str(call.path["seq"])
    try:
        found = sent(held.db, row["id"], int(seq)) if seq.isascii() and seq.isdigit() and len(seq) < 10 else None
    except Gone as gone:
        raise Problem(410, "Gone", f"The request cannot be shown as it was sent. {gone}") from None
    if found is None:
        raise Problem(404, "No such request", "No model was asked up to that event. `events` has their numbers.")
    return Answer(200, {"thread_id": row["id"], **found.as_row()})
