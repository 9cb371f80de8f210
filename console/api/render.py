"""A thread as the API shows it: our rows and events in the words of the interface. Pure; nothing here is stored.

Who may not see content gets what happened and when, and never what was said, decided or returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from twelvefold.decide import budget_of
from twelvefold.questions import AskHuman
from twelvefold.state import State, unused
from twelvefold.verdict import Verdict
from workers.registry import Registry

Row = Mapping[str, Any]
UNSHOWN = ("raw", "request", "receipt", "made_of", "held", "verdict", "fingerprint")
"""Members of an event that are for machines; `/thread/{id}/events` is for people and programs that act."""

WAITS = {"approval": "approval", "question": "answer"}
"""What is waited for, by the kind of a question."""


DONE, ASKS = "done_for_now", AskHuman.__spec__.name
INTENTS = {"done": DONE, "nothing_to_do": DONE, ASKS: "request_more_information"}
"""What the workshop's server calls these three, whose shapes this interface keeps; other intents are names of tools."""


def links(task_id: str, call: int | None = None) -> dict[str, str]:
    """The two addresses of a thread, with the `call` that waits for a person, so that what is sent to a kept address
    reaches that one or none; relative, so that no header of a request gets into them.
    """
    own = "" if call is None else f"/{call}"
    return {"response_url": f"/thread/{task_id}/response{own}", "events_url": f"/thread/{task_id}/events"}


def open_call(asked: Sequence[Row]) -> int | None:
    """The call that a person may decide about or answer now."""
    return next((question["call"] for question in asked if question["open"]), None)


def events(rows: Sequence[Row], state: State, *, content: bool) -> list[dict[str, Any]]:
    """The events in order. Where one is about a call, `data` says which intent it is and with which arguments."""
    if not content:
        return [{name: row[name] for name in ("seq", "at", "type")} for row in rows]
    calls = {row["seq"]: (row["data"]["tool"], row["data"]["args"]) for row in rows if row["type"] == "Decided"}
    if state.call is not None:
        calls.setdefault(state.call.seq, (state.call.tool, state.call.args))
    return [{"seq": r["seq"], "at": r["at"], "type": r["type"], "data": _data(r, calls)} for r in rows]


def _data(row: Row, calls: Mapping[int, tuple[str, str]]) -> dict[str, Any]:
    data = {name: value for name, value in row["data"].items() if name not in UNSHOWN}
    if row["type"] == "Finished":
        return data | ({"intent": DONE, "message": _words(data.get("outcome"))} if data["status"] == "done" else {})
    call = row["seq"] if row["type"] == "Decided" else data.pop("call", None)
    if call is None:
        return data
    if row["type"] in ("Decided", "ApprovalAsked"):
        data.pop("tool", None)
        if call in calls:
            tool, text = calls[call]
            given = json.loads(data.pop("args", "") or text)
            data = {**given, **data, "intent": INTENTS.get(tool, tool), "args": given}
            data |= {"message": given["reason"]} if tool == ASKS else {}
    return {**data, "call_id": call}


def _words(outcome: Any) -> str:
    """A result in words, for whoever only reads `message`."""
    said = outcome.get("text") if isinstance(outcome, dict) else outcome
    return said if isinstance(said, str) else as_json(outcome)


def last_with_url(shown: list[dict[str, Any]], url: str) -> list[dict[str, Any]]:
    """The events with the address to respond at in the last one, as clients of the workshop's server expect it."""
    if shown:
        shown[-1].setdefault("data", {})["response_url"] = url
    return shown


def awaiting(row: Row, asked: Sequence[Row]) -> dict[str, bool]:
    """The two flags: whether a decision about a call is open, and whether words are: an answer, or more of them for a
    thread that is done.
    """
    return {
        "awaitingHumanResponse": row["status"] == "done" or any(_open(asked, "question")),
        "awaitingHumanApproval": any(_open(asked, "approval")),
    }


def waiting(row: Row, state: State, asked: Sequence[Row], *, content: bool) -> dict[str, Any] | None:
    """What the thread waits for, since when, until when, and who can end it; None when it waits for nothing."""
    question = next((found for found in asked if found["open"]), None)
    if question is None and row["status"] != "waiting":
        return None
    call = state.call
    shown: dict[str, Any] = {
        "kind": WAITS[question["kind"]] if question else row["waiting_for"],
        "call_id": call.seq if call else None,
        "tool": call.tool if call else None,
        "args": json.loads(call.args) if call and content else None,
        "since": state.at,
        "deadline": row["due_at"],
        "responders": [],
    }
    return shown | asking(question) if question else shown


def _open(asked: Sequence[Row], kind: str) -> list[bool]:
    return [question["open"] for question in asked if question["kind"] == kind]


def asking(question: Row) -> dict[str, Any]:
    """One open question: what a decision about it, or an answer to it, has to name."""
    return {
        "kind": WAITS[question["kind"]],
        "call_id": question["call"],
        "digest": question["digest"],
        "risk": question["risk"],
        "votes": question["votes"],
        "quorum": question["quorum"],
        "since": when(question["created_at"]),
        "deadline": when(question["deadline"]),
        "responders": list(responders(question)) or [question["target"]],
    }


def responders(question: Row) -> tuple[str, ...]:
    """The addresses of those who may decide or answer now; empty where the question names nobody."""
    return Verdict.model_validate_json(question["verdict"]).may_decide(escalated=question["escalated"])


def when(at: datetime) -> str:
    """A time as text, in UTC."""
    return at.astimezone(UTC).isoformat()


def switches(rows: Sequence[Row], *, content: bool) -> list[dict[str, Any]]:
    """What holds the thread besides itself; why is content."""
    names = ("kind", "scope", "until", "reason") if content else ("kind", "scope", "until")
    return [{name: row[name] for name in names} for row in rows]


def as_json(value: object) -> str:
    """One line of JSON, with times in UTC, and whatever else JSON has no form for as text."""
    return json.dumps(value, default=_text, ensure_ascii=False, separators=(",", ":"))


def _text(value: object) -> str:
    return when(value) if isinstance(value, datetime) else str(value)


def budget(agents: Registry, row: Row, state: State) -> dict[str, Any]:
    """What the run has used and what it has left; left is None when this process does not know the agent."""
    loaded = agents.loaded.get(row["agent"])
    left = None if loaded is None else unused(budget_of(loaded.agent, state).as_usage(), state.used)
    return {
        "used": state.used.model_dump(mode="json"),
        "left": None if left is None else left.model_dump(mode="json"),
    }


def brief(row: Row) -> dict[str, Any]:
    """One thread in a list, without content."""
    return {
        "thread_id": row["id"],
        "agent": row["agent"],
        "status": row["status"],
        "waiting_for": row["waiting_for"] if row["status"] == "waiting" else None,
        "current_step": row["current_step"],
        "business_ref": row["business_entity_id"],
        "reason": row["reason"],
        "paused": row["paused_at"] is not None,
        "created_at": row["created_at"],
        "finished_at": row["finished_at"],
    }
