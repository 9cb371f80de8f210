"""The handlers that only look: a thread, its events, many threads, and the questions that wait for a decision."""

from __future__ import annotations

import json
from typing import Any

from console.edge import Edge
from twelvefold.state import State
from workers.store import threads
from workers.store.switches import holding

from . import render
from .bodies import Filters, Nothing, Page
from .problems import no_thread, not_its_agent
from .request import Answer, Call

NEWEST = 200
"""So many events are shown with a thread; the others by its `events_url`."""


def own(held: Edge, call: Call) -> dict[str, Any]:
    """The row of the thread in the path. Raises Problem 404 when the caller's tenant has none, 403 for its agent."""
    row = threads.task(held.db, call.thread, call.token.tenant)
    if row is None:
        raise no_thread()
    if not call.token.may_use(row["agent"]):
        raise not_its_agent(row["agent"])
    return row


def thread(held: Edge, call: Call) -> Answer:
    """`GET /thread/{id}`: where it stands, what it waits for, what it used, and its newest events."""
    call.asks(Nothing)
    return Answer(200, document(held, call, own(held, call), max_events=NEWEST))


def document(held: Edge, call: Call, row: dict[str, Any], *, after: int = 0, max_events: int) -> dict[str, Any]:
    """A thread, with at most so many of its events after a seq: the newest, up to the row's own."""
    state = State.model_validate_json(row["state"])
    content = sees_content(call)
    asked = threads.asked(held.db, row["id"], row["tenant"], state.opened)
    first = max(after, row["seq"] - max_events)
    rows = threads.events(held.db, row["id"], row["tenant"], after=first, most=row["seq"] - first)
    shown = render.events(rows, state, content=content)
    links = render.links(row["id"], render.open_call(asked))
    return {
        **render.brief(row),
        "waiting": render.waiting(row, state, asked, content=content),
        **render.awaiting(row, asked),
        "budget": render.budget(held.agents, row, state),
        "outcome": row["outcome"] if content else None,
        "seen": state.message_seq,
        "cancelling": row["cancel_asked"] is not None,
        "switches": render.switches(holding(held.db, row["id"]), content=content),
        "events": render.last_with_url(shown, links["response_url"]),
        "earlier_events": first > after,
        **links,
    }


def turn(held: Edge, call: Call, answer: Answer) -> Answer:
    """The answer after a wait: the thread as it is now, with what it did meanwhile; 200 when it rests, else 202."""
    assert answer.turn is not None
    thread_id = answer.turn.thread
    rests = bool(threads.resting(held.db, [thread_id]))
    row = threads.task(held.db, thread_id, call.token.tenant)
    assert row is not None
    found = document(held, call, row, after=answer.turn.after, max_events=NEWEST)
    return Answer(200 if rests else 202, {**answer.document, **found})


def events(held: Edge, call: Call) -> Answer:
    """`GET /thread/{id}/events`: a page of the log; `next` is the `after` of the following one."""
    page = call.asks(Page)
    row = own(held, call)
    state = State.model_validate_json(row["state"])
    rows = threads.events(held.db, row["id"], row["tenant"], after=page.after, most=page.limit)
    shown = render.events(rows, state, content=sees_content(call))
    more = bool(rows) and rows[-1]["seq"] < row["seq"]
    return Answer(200, {"thread_id": row["id"], "events": shown, "next": rows[-1]["seq"] if more else None})


def many(held: Edge, call: Call) -> Answer:
    """`GET /thread`: the newest threads of the caller's tenant and agents."""
    asked = call.asks(Filters)
    agents = None if call.token.agents is None else sorted(call.token.agents)
    if asked.agent is not None:
        if not call.token.may_use(asked.agent):
            raise not_its_agent(asked.agent)
        agents = [asked.agent]
    rows = threads.tasks(
        held.db, call.token.tenant, agents=agents, status=asked.status, waiting_for=asked.waiting_for,
        business_ref=asked.business_ref, before=str(asked.before) if asked.before else None, most=asked.limit,
    )  # fmt: skip
    full = len(rows) == asked.limit
    return Answer(200, {"threads": [render.brief(row) for row in rows], "next": rows[-1]["id"] if full else None})


def approvals(held: Edge, call: Call) -> Answer:
    """`GET /approvals`: the questions that wait for a decision, oldest first."""
    call.asks(Nothing)
    agents = None if call.token.agents is None else sorted(call.token.agents)
    content = sees_content(call)
    return Answer(200, {
        "approvals": [
            {
                "thread_id": row["task_id"], "agent": row["agent"], "tool": row["tool"],
                "args": json.loads(row["args"]) if content and row["args"] else None, **render.asking(row),
                "response_url": render.links(row["task_id"], row["call"])["response_url"],
            }
            for row in threads.approvals(held.db, call.token.tenant, agents=agents)
        ]
    })  # fmt: skip


def sees_content(call: Call) -> bool:
    """Whether the caller is more than a viewer."""
    return call.token.has("reader", "requester", "approver", "operator")
