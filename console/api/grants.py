"""`/grants`: approvals that hold for more than one call, given with one of them; here they are seen and ended."""

from __future__ import annotations

from typing import Any

from console.edge import Edge
from triggers.problem import Problem
from workers.operate import Refused
from workers.store import grants

from .bodies import Nothing
from .look import sees_content
from .problems import not_its_agent
from .request import Answer, Call

NAMES = ("id", "agent", "tool", "by", "until", "used", "used_at", "revoked_at", "revoked_by", "created_at")
NO_GRANT = Problem(404, "Unknown grant", "There is no grant of this id. `GET /grants` lists those you may see.")


def listed(held: Edge, call: Call) -> Answer:
    """The newest grants of the caller's tenant and agents, those that are over too; `same` are the arguments that a
    call has to have, and `thread_id` the only thread that it holds for.
    """
    call.asks(Nothing)
    content = sees_content(call)
    rows = [row for row in grants.listed(held.db, call.token.tenant, most=200) if call.token.may_use(row["agent"])]
    return Answer(200, {"grants": [_shown(row, content) for row in rows]})


def revoke(held: Edge, call: Call) -> Answer:
    """End a grant: from here on no call begins on it, not even one that it has approved already."""
    call.asks(Nothing)
    call.read(Nothing)
    row = grants.find(held.db, call.token.tenant, call.thread)
    if row is None:
        raise NO_GRANT
    if not call.token.may_use(row["agent"]):
        raise not_its_agent(row["agent"])
    try:
        held.operate.revoke(row["id"], by=call.token.principal, tenant=call.token.tenant)
    except Refused:
        raise NO_GRANT from None
    found = grants.find(held.db, call.token.tenant, row["id"])
    assert found is not None, "no grant is ever deleted"
    return Answer(202, {"accepted": True, **_shown(found, sees_content(call))})


def _shown(row: dict[str, Any], content: bool) -> dict[str, Any]:
    same = row["pattern"] if content else None
    return {**{name: row[name] for name in NAMES}, "thread_id": row["task_id"], "same": same}
