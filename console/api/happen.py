"""`POST /events`: something that happened outside, for whichever thread waits for its key."""

from __future__ import annotations

from uuid import uuid4

from console.edge import Edge
from triggers.problem import Problem
from workers.store import threads

from .bodies import Happened, Nothing
from .problems import key_taken
from .request import Answer, Call

SOURCE = "api"


def happen(held: Edge, call: Call) -> Answer:
    """Wake who waits for the key. What nobody waits for yet is kept for 24 hours, for the next who does."""
    call.asks(Nothing)
    said, token = call.read(Happened), call.token
    if token.agents is not None:
        raise Problem(403, "Not for some agents only", "Any agent may wait for a key; use a token for all agents.")
    key = f"event {call.key or uuid4()} {token.principal}"
    verdict = held.intake.event(
        token.tenant, said.key, source=SOURCE, key=key, payload=said.data, sender=token.principal,
        proof=f"token:{token.id}", cleaned=call.cleaned,
    )  # fmt: skip
    if verdict.outcome == "duplicate":
        first = threads.arrival(held.db, token.tenant, SOURCE, key)
        assert first is not None
        if (first["wait_key"], first["payload"]) != (said.key, said.data):
            raise key_taken()
    if verdict.task_id is not None:
        row = threads.task(held.db, verdict.task_id, token.tenant)
        held.bell.ring(verdict.task_id, row["agent"] if row else SOURCE, "answers")
    return Answer(202, {"accepted": True, "key": said.key, "thread_id": verdict.task_id})
