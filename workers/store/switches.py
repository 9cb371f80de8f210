"""The rows of `switches`: what holds for a scope, until when and why. Written under the exclusive freeze lock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .claims import FREEZE_LOCK
from .database import Connection, Database

HOLDS = "(s.until IS NULL OR s.until > clock_timestamp())"

RENEW = """
UPDATE switches s SET until = %(until)s, by = %(by)s, reason = %(reason)s, created_at = clock_timestamp()
 WHERE s.tenant = %(tenant)s AND s.kind = %(kind)s AND s.scope = %(scope)s
"""
THROW = """
INSERT INTO switches (tenant, kind, scope, until, by, reason)
VALUES (%(tenant)s, %(kind)s, %(scope)s, %(until)s, %(by)s, %(reason)s)
"""
LIFT = "DELETE FROM switches s WHERE s.tenant = %(tenant)s AND s.kind = %(kind)s AND s.scope = %(scope)s"

BEGUN = """
SELECT id::text, (state -> 'call' ->> 'seq')::int, state -> 'call' ->> 'tool' FROM agent_tasks
 WHERE status = 'ready' AND state -> 'call' ->> 'phase' = 'begun' AND (%(tenant)s IN ('*', tenant))
   AND %(scope)s IN ('*', 'agent:' || agent, 'tool:' || (state -> 'call' ->> 'tool')) ORDER BY id
"""

LISTED = f"""
SELECT s.tenant, s.kind, s.scope, s.until, s.by, s.reason, s.created_at FROM switches s
 WHERE (%(tenant)s::text IS NULL OR s.tenant IN ('*', %(tenant)s)) AND {HOLDS}
 ORDER BY s.id
"""

HOLDING = f"""
SELECT s.kind, s.scope, s.until, s.reason FROM agent_tasks t JOIN switches s ON s.tenant IN ('*', t.tenant)
   AND s.scope IN ('*', 'agent:' || t.agent, 'tool:' || (t.state -> 'call' ->> 'tool'))
 WHERE t.id = %(id)s AND {HOLDS} AND (s.kind <> 'intake' OR (t.seq = 0 AND t.parent_id IS NULL))
 ORDER BY s.id
"""


def lock(connection: Connection) -> None:
    """Wait for every Begin under way; whatever is written now, every later one sees."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (FREEZE_LOCK,))


def throw(
    connection: Connection, tenant: str, kind: str, scope: str, *, until: datetime | None, by: str, reason: str
) -> None:
    """Write the switch, or give the one of this kind and scope another end and reason. The lock is held."""
    names = {"tenant": tenant, "kind": kind, "scope": scope, "until": until, "by": by, "reason": reason}
    if not connection.execute(RENEW, names).rowcount:
        connection.execute(THROW, names)


def lift(connection: Connection, tenant: str, kind: str, scope: str) -> bool:
    """End the switch; False when there was none. The lock is held."""
    return connection.execute(LIFT, {"tenant": tenant, "kind": kind, "scope": scope}).rowcount > 0


def begun(connection: Connection, tenant: str, scope: str) -> list[tuple[str, int, str]]:
    """What had begun in a scope and has not come back: (task, call, tool)."""
    found = connection.execute(BEGUN, {"tenant": tenant, "scope": scope}).fetchall()
    return [(row[0], row[1], row[2]) for row in found]


def listed(db: Database, tenant: str | None = None) -> list[dict[str, Any]]:
    """What holds for a tenant, or, for the command line alone, for anybody."""
    return db.rows(LISTED, {"tenant": tenant})


def holding(db: Database, task_id: str) -> list[dict[str, Any]]:
    """What holds for one task."""
    return db.rows(HOLDING, {"id": task_id})
