"""`POST /thread/{id}/response`: words for a thread, an answer, or a decision about a call that it asked about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any, Literal
from uuid import uuid4

from console.edge import Edge
from triggers.problem import Problem
from twelvefold.canonical import canonical
from twelvefold.state import State
from workers.answers import Reply, answer, may_answer
from workers.decisions import Decision, Refused, Terms, Wish, decide
from workers.store import threads

from . import render
from .bodies import Approval, Nothing, Response
from .look import own
from .problems import bad, key_taken, no_role
from .request import Answer, Call, Turn

ENDED = ("done", "failed", "cancelled")
OTHERWISE = {
    400: "The arguments do not fit",
    403: "Not yours to decide",
    404: "Unknown call",
    409: "Not decided",
    410: "No longer open",
}
Question = dict[str, Any]


def respond_to(held: Edge, call: Call) -> Answer:
    """The same about the call in the path, as `response_url` has it: it reaches that call or none. Words to a call that
    was decided, while nothing else is asked, are words to the thread, as the workshop's clients send them.
    """
    number = call.path["call_id"]
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise Problem(404, "Unknown call", "The path ends with the number of a call: /thread/{id}/response/7.")
    if call.body.get("call_id", int(number)) != int(number):
        raise bad("Which call?", "The body names another call than the path. Leave `call_id` out, or send it alike.")
    row = own(held, call)
    asked = threads.asked(held.db, row["id"], row["tenant"], 0)
    decided = any(question["call"] == int(number) and question["kind"] == "approval" for question in asked)
    if decided and call.body.get("type") == "response" and not any(question["open"] for question in asked):
        return respond(held, replace(call, body={k: v for k, v in call.body.items() if k != "call_id"}))
    return respond(held, replace(call, body={**call.body, "call_id": int(number)}))


def respond(held: Edge, call: Call) -> Answer:
    """One address for both, as in the workshop's server; `type` says which it is."""
    call.asks(Nothing)
    row = own(held, call)
    asked = threads.asked(held.db, row["id"], row["tenant"], 0)
    kind = call.body.get("type")
    if kind == "response":
        return _words(held, call, row, asked)
    if kind == "approval":
        return decision(held, call, row, asked)
    raise _mismatch(row, asked, '`type` is "response" (with `response`) or "approval" (with `approved`).')


def _words(held: Edge, call: Call, row: dict[str, Any], asked: Sequence[Question]) -> Answer:
    if not call.token.has("requester"):
        raise no_role(("requester",))
    said = call.read(Response)
    if any(question["open"] for question in asked if question["kind"] == "approval"):
        raise _mismatch(row, asked, "The thread waits for a decision about a call, not for words: send an approval.")
    if said.call_id is not None or _answers(call, asked):
        return _answer(held, call, row, said, asked)
    token = call.token
    key = f"{row['id']} {call.key or uuid4()} {token.principal}"  # neither id nor key has a space: unambiguous
    verdict = held.intake.message(
        row["id"], source="api", key=key, text=said.response, sender=token.principal, proof=f"token:{token.id}",
        cleaned=call.cleaned,
    )  # fmt: skip
    after, outcome, reason = row["seq"], verdict.outcome, verdict.reason
    if outcome == "duplicate":
        first = threads.arrival(held.db, token.tenant, "api", key)
        assert first is not None
        if first["payload"]["text"] != said.response:
            raise key_taken()
        after, reason = (first["absorbed_seq"] or row["seq"] + 1) - 1, first["reason"]
        outcome = "ignored" if first["state"] == "ignored" else "accepted"
    if outcome == "ignored" and reason == "another_open":
        raise Problem(
            409, "Another thread is open", "It is about the same, and takes what is new. Write to that one.",
            open_thread=verdict.task_id if verdict.outcome == "ignored" else None,
        )  # fmt: skip
    if outcome == "ignored":
        raise Problem(
            409, "The thread has ended", f"It is {reason} and takes no more messages. Open a new one: POST /thread."
        )
    held.bell.ring(row["id"], row["agent"], "answers")
    document = {
        "accepted": True,
        "thread_id": row["id"],
        "reopened": row["status"] == "done",
        **render.links(row["id"]),
    }
    return Answer(202, document, Turn(row["id"], after))


def _answers(call: Call, asked: Sequence[Question]) -> bool:
    """Whether words that name no call answer the open question: those of somebody who is asked. Others are news."""
    return any(
        question["open"] and may_answer(render.responders(question), call.token.principal, "session")
        for question in asked
        if question["kind"] == "question"
    )


def _answer(held: Edge, call: Call, row: dict[str, Any], said: Response, asked: Sequence[Question]) -> Answer:
    token = call.token
    reply = Reply(row["id"], said.response, token.principal, "session", tenant=token.tenant, call=said.call_id)
    try:
        answered = answer(held.db, reply)
    except Refused as refused:
        if refused.code in (400, 404):
            raise _mismatch(row, asked, str(refused), code=refused.kind) from None
        members = {"open": _open(asked)} if refused.kind == "call_id_required" else {}
        raise _refused(refused, "Not answered", **members) from None
    held.bell.ring(row["id"], row["agent"], "answers")
    document = {
        "accepted": True, "thread_id": row["id"], "call_id": answered.call, "answered_by": answered.by,
        "answered_at": answered.at.replace(tzinfo=UTC).isoformat(), **render.links(row["id"]),
    }  # fmt: skip
    return Answer(202, document, Turn(row["id"], answered.asked))


def decision(held: Edge, call: Call, row: dict[str, Any], asked: Sequence[Question]) -> Answer:
    """Decide about one of the calls that the thread of this row `asked` about. Raises Problem."""
    if not call.token.has("approver"):
        raise no_role(("approver",))
    said = call.read(Approval)
    question = _meant(row, said, asked)
    wish = Wish(
        row["id"], question["call"], _to(said), call.token.principal, "session", tenant=call.token.tenant,
        asked=question["asked"], digest=said.digest, comment=said.more_info or said.comment,
        seen=said.seen, edited=_edited(said), grant=_terms(said),
    )  # fmt: skip
    try:
        come = decide(held.db, wish, held.agents)
    except Refused as refused:
        raise _refused(refused) from None
    held.bell.ring(row["id"], row["agent"], "answers")
    document = {
        "accepted": True, "thread_id": row["id"], "call_id": question["call"],
        **_who(come), **render.links(row["id"]),
    }  # fmt: skip
    return Answer(202, document, Turn(row["id"], question["asked"]))


def _to(said: Approval) -> Literal["approved", "rejected", "more_info"]:
    if (said.approved is None) == (said.more_info is None):
        raise bad(
            "Approved, or asked back", "Send `approved`, true or false, or else `more_info` with what to ask the agent."
        )
    return "more_info" if said.approved is None else "approved" if said.approved else "rejected"


def _terms(said: Approval) -> Terms | None:
    if said.grant is None:
        return None
    if not said.approved:
        raise bad("Granted and not approved", "Send `grant` with `approved: true`.")
    return Terms(said.grant.hours, said.grant.this_thread, tuple(said.grant.same))


def _edited(said: Approval) -> str | None:
    if said.edited_args is None:
        return None
    if not said.approved:
        raise bad(
            "Edited and rejected", "Send `edited_args` with `approved: true`, or say in `comment` what to change."
        )
    try:
        return canonical(said.edited_args)
    except TypeError as error:
        raise bad("The arguments do not fit", str(error)) from None


def _meant(row: dict[str, Any], said: Approval, asked: Sequence[Question]) -> Question:
    """The question that a decision is about: the one it names, or the only one of the run where the risk is low."""
    calls = [question for question in asked if question["kind"] == "approval"]
    if said.call_id is not None and said.digest is not None:
        named = [question for question in calls if question["call"] == said.call_id]
        if named:
            return named[-1]
        if row["status"] not in ENDED and any(question["open"] for question in calls):
            raise Problem(404, "Unknown call", f"Nothing was asked about the call {said.call_id}.", open=_open(calls))
    opened = State.model_validate_json(row["state"]).opened
    run = [question for question in calls if question["asked"] >= opened]
    if len(run) == 1 and run[0]["risk"] == "low" and said.call_id in (None, run[0]["call"]):
        return run[0]
    if any(question["open"] for question in calls):
        raise Problem(
            409, "Which call?", "Send `call_id` and `digest` of the call that was shown to you; `open` lists them.",
            code="call_id_required", open=_open(calls),
        )  # fmt: skip
    if row["status"] in ENDED:
        raise Problem(410, "The thread has ended", f"It is {row['status']}: nothing is left to decide.")
    raise _mismatch(row, asked, "The thread waits for no decision. Send words: a response.")


def _open(asked: Sequence[Question]) -> list[dict[str, Any]]:
    return [render.asking(question) for question in asked if question["open"]]


def _mismatch(row: dict[str, Any], asked: Sequence[Question], why: str, **members: Any) -> Problem:
    flags, title = render.awaiting(row, asked), "Not what the thread waits for"
    return bad(title, why, error=title, **flags, waiting_for=row["waiting_for"], **members)


def _refused(refused: Refused, title: str = "", **members: Any) -> Problem:
    members |= {} if refused.decision is None else _who(refused.decision)
    if refused.kind:
        members["code"] = refused.kind
    return Problem(refused.code, title or OTHERWISE[refused.code], str(refused), None, **members)


def _who(decision: Decision) -> dict[str, Any]:
    """Who decided what, and when."""
    at = decision.at.replace(tzinfo=UTC).isoformat()
    votes = {"votes": decision.votes, "quorum": decision.quorum} if decision.quorum > 1 else {}
    return {"decision": decision.state, "decided_by": decision.by, "decided_at": at, **votes}
