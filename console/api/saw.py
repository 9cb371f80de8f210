"""The handlers that show what a model saw of a thread: numbers and names, and nothing of what was said."""

from __future__ import annotations

from console.edge import Edge
from console.receipts import saw
from triggers.problem import Problem
from workers.store import receipts

from .bodies import Nothing
from .look import own
from .request import Answer, Call

MOST_SEQ = 2**31 - 1


def receipt(held: Edge, call: Call) -> Answer:
    """`GET /thread/{id}/receipt/{seq}`: what the question at this event, or the last one before it, was made of."""
    call.asks(Nothing)
    row, seq = own(held, call), _seq(call)
    found = receipts.receipt(held.db, row["id"], seq)
    if found is None:
        raise Problem(404, "No such question", f"No model was asked up to event {seq}. Take the seq of a ModelAsked.")
    return Answer(200, {"thread_id": row["id"], **found})


def seen(held: Edge, call: Call) -> Answer:
    """`GET /thread/{id}/seen/{seq}`: the questions to a model after this event, and how each of them showed it."""
    call.asks(Nothing)
    row, seq = own(held, call), _seq(call)
    if seq > row["seq"]:
        raise Problem(404, "No such event", f"The thread has {row['seq']} events.")
    return Answer(200, {"thread_id": row["id"], "event": seq, "questions": saw(held.db, row["id"], seq)})


def _seq(call: Call) -> int:
    text = str(call.path["seq"])
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MOST_SEQ:
        raise Problem(404, "No such event", "The last part of the path is the seq of an event, such as 12.")
    return int(text)
