"""All that `show` tells of one task: where it stands, what it waits for, what it used, and what happened last."""

from __future__ import annotations

from collections.abc import Iterator

from twelvefold.decide import budget_of
from twelvefold.state import State
from twelvefold.text import one_line
from workers.registry import Registry
from workers.store import slots, switches, threads
from workers.store.database import Database

from .views import Row, error_of, goes_of, line, status_of

LAST = 10


def story(db: Database, agents: Registry, row: Row, tenant_concurrency: int | None = None) -> Row:
    """All that `show` says of one task, as data."""
    limits = agents.flows.under(tenant_concurrency)
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
        "switches": switches.holding(db, row["id"]),
        "limits": slots.held_by(db, row["id"], limits),
        "letters": threads.letters(db, row["tenant"], task_id=row["id"], most=20),
        "events": threads.events(db, row["id"], row["tenant"], after=max(0, row["seq"] - LAST)),
    }


def held(db: Database, agents: Registry, task_id: str, tenant_concurrency: int | None) -> list[str]:
    """What keeps a task from going on now: switches over it, and limits that are reached."""
    found = [f"{row['kind']} of {row['scope']}" for row in switches.holding(db, task_id)]
    return found + [row["limit"] for row in slots.held_by(db, task_id, agents.flows.under(tenant_concurrency))]


def told(story: Row) -> Iterator[str]:
    """The same as lines."""
    yield f"{story['id']}  {story['agent']}  tenant {story['tenant']}"
    yield f"status    {status_of(story)}, step {story['current_step']}, run {story['run']}" + _marks(story)
    for row in story["switches"]:
        yield f"held by   {row['kind']} of {row['scope']}: twelvefold switches"
    for row in story["limits"]:
        yield f"held by   the limit {row['limit']}; {row['taken']} are taken" + until(row)
    if story["business_entity_id"]:
        yield f"about     {story['business_entity_id']}"
    yield "budget    " + ", ".join(_budget(story))
    if story["call"]:
        call = story["call"]
        yield f"call      {call['seq']} {call['tool']} ({call['phase']}) {one_line(call['args'], 100)}"
    for question in story["approvals"]:
        yield _question(story, question)
    for row in story["letters"]:
        yield f"letter    {row['state']} {goes_of(row)}{error_of(row)}"
    yield "events"
    yield from map(line, story["events"])


def until(row: Row) -> str:
    """When there is room again, where that is a matter of time."""
    return f", there is room again at {row['until']:%H:%M:%S} UTC" if row["until"] else ""


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
