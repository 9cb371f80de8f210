"""`POST /thread`: a message or an event opens a task. An agent that nobody named is found by code, never by a model."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from console.edge import Edge
from triggers.problem import Problem
from twelvefold.agent import Agent, Message
from workers.registry import Loaded, accepts_message
from workers.store import threads
from workers.store.inbox import Entry
from workers.store.tokens import Token

from . import render
from .bodies import Launch, Nothing
from .problems import bad, key_taken, not_its_agent, unfit
from .request import Answer, Call, Turn
from .terms import budget, destinations

SOURCE = "api"


def launch(held: Edge, call: Call) -> Answer:
    """Open a thread. A repeat with the same Idempotency-Key and body is answered with the thread of the first one."""
    call.asks(Nothing)
    wish = call.read(Launch)
    if (wish.message is None) == (wish.event is None) and not _speaks_first(held, wish):
        raise bad(
            "What is it about?",
            "Send either `message` (words) or `event` (what the agent accepts). An agent with prefetch functions "
            "needs neither.",
        )
    token = call.token
    entry = Entry(
        tenant=token.tenant, source=SOURCE, key=f"thread {call.key or uuid4()} {token.principal}", kind="message",
        type="event" if wish.message is None else "message", raw=call.raw, sender=token.principal,
        proof=f"token:{token.id}", cleaned=call.cleaned,
    )  # fmt: skip
    loaded = _chosen(held, call, wish, entry)
    agent = loaded.agent
    if not token.may_use(agent.name):
        raise not_its_agent(agent.name)
    try:
        verdict = held.intake.open(
            loaded, entry, _accepted(agent, wish, token), about=wish.business_ref,
            budget=budget(agent, wish.budget), delivery=destinations(agent, token, wish.delivery),
        )  # fmt: skip
    except ValidationError as error:
        raise unfit(f"Not what {agent.name} accepts", error, accepts=agent.accepted.json_schema()) from None
    if verdict.outcome == "duplicate":
        return _repeated(held, call, entry)
    assert verdict.task_id is not None
    joined = threads.task(held.db, verdict.task_id, token.tenant) if verdict.reason == "joined" else None
    held.bell.ring(verdict.task_id, agent.name)
    return _opened(verdict.task_id, agent.name, "ready", joined)


def _opened(task_id: str, agent: str, status: str, joined: dict[str, Any] | None = None) -> Answer:
    """The answer with the thread, which may have been open about the same before: then with what is new only."""
    document = {"thread_id": task_id, "agent": agent, "status": status, "events": [], **render.links(task_id)}
    if joined is None:
        return Answer(202, document, Turn(task_id, 0))
    return Answer(202, {**document, "status": joined["status"], "joined": True}, Turn(task_id, joined["seq"]))


def _chosen(held: Edge, call: Call, wish: Launch, entry: Entry) -> Loaded:
    """The agent that is named, or the one that takes the message by its declaration."""
    token = call.token
    if wish.agent is not None:
        if wish.agent not in held.agents.loaded:
            raise _unknown_agent(held, token, f"There is no agent {wish.agent}.")
        return held.agents[wish.agent]
    if wish.message is None:
        raise bad("Which agent?", "An event needs `agent`.", agents=_usable(held, token))
    takers = held.agents.takers(wish.message)
    if len(takers) == 1:
        return takers[0]
    if held.intake.ignore(entry, "ambiguous" if takers else "no_binding").outcome == "duplicate":
        _same_body(held, call, entry)
    raise _unknown_agent(
        held, call.token, f"{'More than one agent takes' if takers else 'No agent takes'} this message."
    )


def _usable(held: Edge, token: Token) -> list[dict[str, Any]]:
    return [
        {"name": name, "takes_message": accepts_message(entry.agent)}
        for name, entry in sorted(held.agents.loaded.items())
        if token.may_use(name)
    ]


def _unknown_agent(held: Edge, token: Token, what: str) -> Problem:
    usable = _usable(held, token)
    names = ", ".join(each["name"] for each in usable) or "none"
    return Problem(404, "Unknown agent", f"{what} Name one in `agent`. You may use: {names}.", agents=usable)


def _speaks_first(held: Edge, wish: Launch) -> bool:
    """Whether the named agent has something to begin with where nobody says anything."""
    entry = held.agents.loaded.get(wish.agent or "")
    return wish.message is None and wish.event is None and entry is not None and bool(entry.agent.prefetch)


def _accepted(agent: Agent, wish: Launch, token: Token) -> Any:
    """What opens the task. Words always come from whom the token names, whatever an event says of its sender."""
    if wish.message is None:
        nothing = Message(text="").model_dump() if accepts_message(agent) else {}
        value = agent.accepted.validate_python(nothing if wish.event is None else wish.event)
        return value.model_copy(update={"sender": token.principal}) if isinstance(value, Message) else value
    if not accepts_message(agent):
        raise bad(
            f"{agent.name} takes no messages",
            "Send `event` with what it accepts instead.",
            accepts=agent.accepted.json_schema(),
        )
    return Message(text=wish.message, sender=token.principal)


def _repeated(held: Edge, call: Call, entry: Entry) -> Answer:
    task_id = _same_body(held, call, entry)
    row = threads.task(held.db, task_id, entry.tenant) if task_id else None
    if row is None:
        raise _unknown_agent(held, call.token, "No agent took this message the first time.")
    return _opened(row["id"], row["agent"], row["status"])


def _same_body(held: Edge, call: Call, entry: Entry) -> str | None:
    """The thread of the first request with this key. Raises Problem 409 when that one said something else."""
    first = threads.arrival(held.db, entry.tenant, entry.source, entry.key)
    assert first is not None
    if json.loads(bytes(first["raw"])) != json.loads(call.raw):
        raise key_taken()
    task_id: str | None = first["task_id"]
    return task_id
