"""`/switches`: what an operator holds for an agent, a tool or all of the tenant: `*` here is no more than that."""

from __future__ import annotations

from datetime import UTC, datetime

from console.edge import Edge
from triggers.problem import Problem
from workers.operate import Refused
from workers.store import switches
from workers.store.tokens import Token

from .bodies import Lift, Nothing, Throw
from .problems import bad, not_its_agent
from .request import Answer, Call


def listed(held: Edge, call: Call) -> Answer:
    """What holds for the tenant, `everywhere` for all tenants included."""
    call.asks(Nothing)
    rows = switches.listed(held.db, call.token.tenant)
    names = ("kind", "scope", "until", "reason", "by", "created_at")
    found = [{name: row[name] for name in names} | {"everywhere": row["tenant"] == "*"} for row in rows]
    return Answer(200, {"switches": found})


def throw(held: Edge, call: Call) -> Answer:
    """Freeze effects, pause everything, or stop what is new; `begun` is what had begun in the scope before."""
    call.asks(Nothing)
    wish = call.read(Throw)
    _owns(call.token, wish.scope)
    if wish.until is not None and wish.until <= datetime.now(UTC):
        raise bad("Over already", "`until` has passed. Name a later time, or leave it out.")
    try:
        thrown = held.switches.throw(
            wish.kind, wish.scope, by=call.token.principal, until=wish.until, reason=wish.reason,
            tenant=call.token.tenant,
        )  # fmt: skip
    except Refused as refused:
        raise bad("No scope", str(refused)) from None
    begun = [{"thread_id": task, "call_id": seq, "tool": tool} for task, seq, tool in thrown.begun]
    return Answer(202, {"accepted": True, "kind": wish.kind, "scope": wish.scope, "begun": begun})


def lift(held: Edge, call: Call) -> Answer:
    """End a switch of the tenant; `held` says whether there was one."""
    call.asks(Nothing)
    wish = call.read(Lift)
    _owns(call.token, wish.scope)
    try:
        was = held.switches.lift(wish.kind, wish.scope, tenant=call.token.tenant)
    except Refused as refused:
        raise bad("No scope", str(refused)) from None
    return Answer(202, {"accepted": True, "kind": wish.kind, "scope": wish.scope, "held": was})


def _owns(token: Token, scope: str) -> None:
    """A token for some agents throws their switches only."""
    kind, _, name = scope.partition(":")
    if kind == "agent" and not token.may_use(name):
        raise not_its_agent(name)
    if kind != "agent" and token.agents is not None:
        names = ", ".join(sorted(token.agents))
        raise Problem(403, "Not your scope", f"This token is for {names}. Use agent:NAME.")
