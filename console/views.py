"""What the command line shows of the database, as lines of text: long data shortened, everything on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from twelvefold.decide import budget_of
from twelvefold.state import State
from twelvefold.text import one_line
from workers.registry import Registry
from workers.store import threads
from workers.store.database import Database

NOISE = ("digest", "receipt", "raw", "request")
LAST = 10
Row = dict[str, Any]


def short(data: Row, most: int = 110) -> str:
    """The data of an event on one line."""
    text = json.dumps({key: value for key, value in data.items() if key not in NOISE}, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def line(event: Row) -> str:
    """One event."""
    return f"{event['seq']:>4} {event['at']:%H:%M:%S} {event['type']:<13} {short(event['data'])}"


def task(row: Row) -> str:
    """One task in a list."""
    about = row["business_entity_id"] or ""
    return f"{row['id']}  {row['agent']:<12} {_status(row):<22} step {row['current_step']:<4} {about}"


def approval(row: Row) -> str:
    """One question that waits, with how to decide it."""
    until = f"until {row['deadline']:%Y-%m-%d %H:%M}"
    return (
        f"{row['task_id']}  call {row['call']:<4} {row['agent']:<12} {row['risk']:<6} {row['target']}  {until}\n"
        f"      {row['tool']} {one_line(row['args'] or '', 100)}\n"
        f"      twelvefold approve {row['task_id']} {row['call']}"
    )


def letter(row: Row) -> str:
    """One letter of the outbox."""
    return f"{row['id']}  {row['state']:<8} tries {row['attempts']:<3} {_goes(row)}  of {row['task_id']}{_error(row)}"


def arrival(row: Row) -> str:
    """One arrival, what became of it and why."""
    became = f"{row['state']}({row['reason']})" if row["reason"] else row["state"]
    what = f"{row['source']:<8} {row['type']:<20} {one_line(row['key'], 60)}"
    return f"{row['received_at']:%m-%d %H:%M:%S}  {became:<24} {what}  {row['task_id'] or ''}"


def story(db: Database, agents: Registry, row: Row) -> Row:
    """All that `show` says of one task, as data."""
    state = State.model_validate_json(row["state"])
    asked = threads.asked(db, row["id"], row["tenant"], state.opened)
    call = None if state.call is None else state.call.model_dump(include={"seq", "tool", "args", "phase"})
    limit = None if row["agent"] not in agents.loaded else budget_of(agents[row["agent"]].agent, state).as_usage()
    return {
        **{name: value for name, value in row.items() if name != "state"},
        "run": state.run,
        "call": call,
        "used": state.used.model_dump(mode="json"),
        "limit": None if limit is None else limit.model_dump(mode="json"),
        "approvals": asked,
        "letters": threads.letters(db, row["tenant"], task_id=row["id"], most=20),
        "events": threads.events(db, row["id"], row["tenant"], after=max(0, row["seq"] - LAST)),
    }


def told(story: Row) -> Iterator[str]:
    """The same as lines."""
    yield f"{story['id']}  {story['agent']}  tenant {story['tenant']}"
    yield f"status    {_status(story)}, step {story['current_step']}, run {story['run']}" + _marks(story)
    if story["business_entity_id"]:
        yield f"about     {story['business_entity_id']}"
    yield "budget    " + ", ".join(_budget(story))
    if story["call"]:
        call = story["call"]
        yield f"call      {call['seq']} {call['tool']} ({call['phase']}) {one_line(call['args'], 100)}"
    for question in story["approvals"]:
        yield _question(story, question)
    for row in story["letters"]:
        yield f"letter    {row['state']} {_goes(row)}{_error(row)}"
    yield "events"
    yield from map(line, story["events"])


def _goes(row: Row) -> str:
    return f"{row['channel']} {row['recipient']}"


def _error(row: Row) -> str:
    return f": {row['error']}" if row["error"] else ""


def _status(row: Row) -> str:
    waits = f" ({row['waiting_for']})" if row["status"] == "waiting" else ""
    return f"{row['status']}{waits}"


def _marks(story: Row) -> str:
    marks = ", paused" if story["paused_at"] else ""
    marks += ", cancel asked" if story["cancel_asked"] else ""
    return marks + (f", {story['reason']}" if story["reason"] else "")


def _budget(story: Row) -> Iterator[str]:
    for name, used in story["used"].items():
        limit = "?" if story["limit"] is None else story["limit"][name]
        yield f"{used} of {limit} {name}"


def _question(story: Row, row: Row) -> str:
    if row["open"]:
        until = f"open until {row['deadline']:%Y-%m-%d %H:%M}, asked of {row['target']}"
        return f"approval  call {row['call']} {until}: twelvefold approve {story['id']} {row['call']}"
    who = f" by {row['decided_by']}" if row["decided_by"] else ""
    return f"approval  call {row['call']} {row['state']}{who}"
