"""What tenants and agents spend in a day: rows that steps append, their roll-up, and what was allowed on top.

A step never writes a counter that others write too. The sweep moves rows into the roll-up; a check reads both in one
statement, so nothing is counted twice and nothing is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from .database import Connection, Database

APPEND = """,
sp AS (INSERT INTO spend (tenant, agent, day, tokens, usd)
       SELECT t.tenant, %(agent)s, (clock_timestamp() AT TIME ZONE 'UTC')::date, %(spent_tokens)s::bigint,
              %(spent_usd)s::numeric FROM t)"""
"""A part of the commit's statement; `t` is the task's row."""

ROLL_UP = """
WITH tail AS (
    DELETE FROM spend WHERE id IN (SELECT id FROM spend ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED)
    RETURNING tenant, agent, day, tokens, usd)
INSERT INTO spend_days (tenant, agent, day, tokens, usd)
SELECT tenant, agent, day, sum(tokens), sum(usd) FROM tail GROUP BY tenant, agent, day ORDER BY tenant, agent, day
ON CONFLICT (tenant, agent, day) DO UPDATE SET tokens = spend_days.tokens + excluded.tokens,
    usd = spend_days.usd + excluded.usd
"""

TODAY = """
WITH today AS (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day),
used AS (
    SELECT agent, tokens, usd FROM spend_days WHERE tenant = %(tenant)s AND day = (SELECT day FROM today)
    UNION ALL
    SELECT agent, tokens, usd FROM spend WHERE tenant = %(tenant)s AND day = (SELECT day FROM today))
SELECT (SELECT day + 1 FROM today)::timestamp AT TIME ZONE 'UTC',
       coalesce(sum(tokens), 0), coalesce(sum(usd), 0),
       coalesce(sum(tokens) FILTER (WHERE agent = %(agent)s), 0), coalesce(sum(usd) FILTER (WHERE agent = %(agent)s), 0)
  FROM used
"""


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens and USD of one scope."""

    tokens: int
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Day:
    """What was spent today (UTC), which ends at `end`: by all of the tenant, and by one agent of it."""

    end: datetime
    tenant: Used
    agent: Used


def today(db: Database, tenant: str, agent: str) -> Day:
    """What was spent today."""
    with db.connection() as connection:
        row = connection.execute(TODAY, {"tenant": tenant, "agent": agent}).fetchone()
    assert row is not None
    return Day(row[0], Used(int(row[1]), row[2]), Used(int(row[3]), row[4]))


def allowed(db: Database, tenant: str, scope: str) -> Used:
    """What was allowed today on top of the scope's budget."""
    with db.connection() as connection:
        row = connection.execute(
            "SELECT coalesce(sum(tokens), 0), coalesce(sum(usd), 0) FROM allowances WHERE tenant = %s AND scope = %s"
            " AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date",
            (tenant, scope),
        ).fetchone()
    assert row is not None
    return Used(int(row[0]), row[1])


def notice(db: Database, tenant: str, scope: str, dimension: str) -> bool:
    """Whether this is the first time today that the scope's budget was found used up."""
    with db.connection() as connection:
        return connection.execute(
            "INSERT INTO spend_notices (tenant, scope, day, dimension) VALUES"
            " (%s, %s, (clock_timestamp() AT TIME ZONE 'UTC')::date, %s) ON CONFLICT DO NOTHING",
            (tenant, scope, dimension),
        ).rowcount == 1  # fmt: skip


def allow(connection: Connection, tenant: str, scope: str, *, tokens: int, usd: Decimal, by: str) -> list[str]:
    """Allow so much more today, and open the notice again: the tasks that wait for it."""
    connection.execute(
        "INSERT INTO allowances (tenant, scope, day, tokens, usd, by) VALUES"
        " (%s, %s, (clock_timestamp() AT TIME ZONE 'UTC')::date, %s, %s, %s)",
        (tenant, scope, tokens, usd, by),
    )
    connection.execute("DELETE FROM spend_notices WHERE tenant = %s AND scope = %s", (tenant, scope))
    found = connection.execute(
        "SELECT id::text FROM agent_tasks WHERE tenant = %s AND status = 'waiting' AND waiting_for = 'budget'"
        " AND reason = %s ORDER BY id",
        (tenant, f"budget {scope}"),
    )
    return [row[0] for row in found.fetchall()]


def roll_up(db: Database) -> int:
    """Move what steps appended into the roll-up: how many (tenant, agent, day)s it concerned."""
    with db.connection() as connection:
        return connection.execute(ROLL_UP).rowcount
