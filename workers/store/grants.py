"""The rows of `grants`: given with an approval, used up to their end, revoked."""

from __future__ import annotations

import json
from typing import Any

from twelvefold.grants import Grant

from .claims import Claimed
from .database import Connection, Database

GIVE = """
INSERT INTO grants (id, tenant, agent, tool, task_id, pattern, rule, by, until)
VALUES (%(id)s, %(tenant)s, %(agent)s, %(tool)s, %(task)s, %(pattern)s, %(rule)s, %(by)s,
        clock_timestamp() + make_interval(hours => %(hours)s))
"""
HOLDING = """
SELECT id::text, by, tool, task_id::text AS task, pattern, rule, until FROM grants
 WHERE tenant = %(tenant)s AND agent = %(agent)s AND (task_id IS NULL OR task_id = %(task)s)
   AND revoked_at IS NULL AND until > clock_timestamp()
 ORDER BY created_at, id
"""
REVOKE = """
UPDATE grants SET revoked_at = coalesce(revoked_at, clock_timestamp()), revoked_by = coalesce(revoked_by, %(by)s)
 WHERE id = %(id)s AND tenant = coalesce(%(tenant)s, tenant)
"""
LIST = """
SELECT id::text, tenant, agent, tool, task_id::text, pattern, by, until, used, used_at, revoked_at, revoked_by,
       created_at
  FROM grants WHERE tenant = coalesce(%(tenant)s, tenant) ORDER BY created_at DESC LIMIT %(most)s
"""


FIND = """
SELECT id::text, tenant, agent, tool, task_id::text, pattern, by, until, used, used_at, revoked_at, revoked_by,
       created_at
  FROM grants WHERE tenant = %(tenant)s AND id = %(id)s
"""


def give(connection: Connection, grant_id: str, **names: Any) -> None:
    """Store a grant; `pattern` is a dict, `hours` how long it holds."""
    connection.execute(GIVE, {**names, "id": grant_id, "pattern": json.dumps(names["pattern"])})


def holding(db: Database, held: Claimed) -> list[Grant]:
    """The grants that hold now for calls of a claimed task."""
    rows = db.rows(HOLDING, {"tenant": held.tenant, "agent": held.agent, "task": held.id})
    return [Grant.model_validate(row) for row in rows]


def revoke(connection: Connection, grant_id: str, by: str, tenant: str | None) -> bool:
    """End a grant; False when there is none. Whoever revoked first stays on the row."""
    return connection.execute(REVOKE, {"id": grant_id, "by": by, "tenant": tenant}).rowcount == 1


def find(db: Database, tenant: str, grant_id: str) -> dict[str, Any] | None:
    """One grant of a tenant."""
    found = db.rows(FIND, {"tenant": tenant, "id": grant_id})
    return found[0] if found else None


def listed(db: Database, tenant: str | None = None, *, most: int = 50) -> list[dict[str, Any]]:
    """The newest grants, those that are over too."""
    return db.rows(LIST, {"tenant": tenant, "most": most})
