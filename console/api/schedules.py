"""`/schedules`: what opens a thread at which times. Agents declare them; operators make, pause and backfill them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from console.edge import Edge
from console.timetable import shown
from triggers.problem import Problem
from twelvefold.bindings import CronBinding
from twelvefold.errors import DeclarationError
from workers.decisions import Refused
from workers.store import schedules
from workers.timetable import Timetable

from .bodies import Backfill, Edit, Named, New, Nothing
from .problems import bad, not_its_agent
from .request import Answer, Call


def listed(held: Edge, call: Call) -> Answer:
    """The schedules of the tenant with their next five times; for a token for some agents, theirs."""
    call.asks(Nothing)
    table = Timetable(held.intake)
    agents = None if call.token.agents is None else list(call.token.agents)
    found = schedules.listed(held.db, call.token.tenant, agents)
    return Answer(200, {"schedules": [shown(table, each) for each in found]})


def new(held: Edge, call: Call) -> Answer:
    """Make a schedule; the answer says in words what it means, and when it fires next."""
    call.asks(Nothing)
    wish = call.read(New)
    _owns(call, f"{wish.agent}.")
    times: dict[str, Any] = {name: value for name, value in wish.given.items() if name != "event"}
    with _told():
        table, binding = Timetable(held.intake), CronBinding(wish.name, **times)
        make = table.preview if wish.dry_run else table.new
        return Answer(200, shown(table, make(call.token.tenant, wish.agent, binding, wish.event)))


def edit(held: Edge, call: Call) -> Answer:
    """Change a schedule that was made here; one that is declared is changed in its agent's code."""
    call.asks(Nothing)
    wish = call.read(Edit)
    _owns(call, wish.name)
    if not wish.given:
        raise bad("Nothing to change", 'Say what changes. Example: {"name": "deploy.sweep", "cron": "@daily"}')
    with _told():
        table = Timetable(held.intake)
        return Answer(200, shown(table, table.edit(call.token.tenant, wish.name, **wish.given)))


def pause(held: Edge, call: Call) -> Answer:
    """Fire nothing until it is resumed."""
    call.asks(Nothing)
    wish = call.read(Named)
    _owns(call, wish.name)
    with _told():
        table = Timetable(held.intake)
        return Answer(200, shown(table, table.pause(call.token.tenant, wish.name, call.token.principal)))


def resume(held: Edge, call: Call) -> Answer:
    """Fire again, from the next time on: what lies in the pause is not made up for."""
    call.asks(Nothing)
    wish = call.read(Named)
    _owns(call, wish.name)
    with _told():
        table = Timetable(held.intake)
        return Answer(200, shown(table, table.resume(call.token.tenant, wish.name)))


def backfill(held: Edge, call: Call) -> Answer:
    """Open the threads of times that have passed and opened none, at most 100; each is opened once."""
    call.asks(Nothing)
    wish = call.read(Backfill)
    _owns(call, wish.name)
    with _told():
        found = Timetable(held.intake).backfill(call.token.tenant, wish.name, wish.begin, wish.end)
    return Answer(202, {"accepted": True, "times": [{"at": at, "became": became} for at, became in found]})


def _owns(call: Call, name: str) -> None:
    """A token for some agents has their schedules only."""
    agent = name.rpartition(".")[0]
    if not call.token.may_use(agent):
        raise not_its_agent(agent)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except DeclarationError as error:
        raise Problem(422, "No such times", str(error)) from None
    except Refused as refused:
        raise Problem(refused.code, "Refused", str(refused)) from None
