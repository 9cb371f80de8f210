"""Slots: what limits how much goes on at once is a row for each place, and a claim under a limit takes one.

A slot is taken for as long as its claim stands, so whatever ends a claim frees it: a commit, a release, a death. Or it
is taken for a time (`until`), which makes a rate. Whoever takes one holds the lock of its scope, and the primary key
(tenant, scope, n) lets no two have the same; n never exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from .claims import CLAIM, Claimed, claimed, not_rung
from .database import Connection, Database, rows
from .quick import quick

TAKEN = """(CASE WHEN s.until IS NULL
      THEN EXISTS (SELECT FROM agent_tasks k WHERE k.id = s.task_id AND k.fence = s.fence AND k.worker_id IS NOT NULL)
      ELSE s.until > clock_timestamp() END)"""

TAKE = f"""
WITH live AS (
    SELECT s.n, s.task_id FROM slots s WHERE s.tenant = %(tenant)s AND s.scope = %(scope)s AND {TAKEN}),
free AS (
    SELECT min(g.n) AS n FROM generate_series(1, %(most)s::int) AS g (n)
     WHERE g.n NOT IN (SELECT live.n FROM live) AND (SELECT count(*) FROM live) < %(most)s::int),
mine AS (SELECT live.n FROM live WHERE live.task_id = %(id)s LIMIT 1),
new AS (
    INSERT INTO slots (tenant, scope, n, task_id, fence, until)
    SELECT %(tenant)s, %(scope)s, free.n, %(id)s, %(fence)s,
           clock_timestamp() + make_interval(secs => %(seconds)s::float)
      FROM free WHERE free.n IS NOT NULL AND NOT EXISTS (SELECT FROM mine)
    ON CONFLICT (tenant, scope, n) DO UPDATE SET task_id = excluded.task_id, fence = excluded.fence,
                until = excluded.until
    RETURNING n)
SELECT n FROM new UNION ALL SELECT n FROM mine
"""

FLOWING = f"{CLAIM.rstrip()}, t.flow_key, t.cancel_asked IS NOT NULL, t.seq = 0 AND t.parent_id IS NULL"

USED = f"""
SELECT count(*) AS n, min(s.until) AS until FROM slots s
 WHERE s.tenant = %(tenant)s AND s.scope = %(scope)s AND {TAKEN}
"""

WAITING = """
SELECT t.tenant, t.agent, t.flow_key, t.seq = 0 AND t.parent_id IS NULL AS begins FROM agent_tasks t
 WHERE t.id = %(id)s AND t.status = 'ready' AND t.worker_id IS NULL AND t.cancel_asked IS NULL
"""


class Limit(Protocol):
    """A limit as `workers/flows.py` has it."""

    @property
    def scope(self) -> str:
        """What is limited, within its tenant."""

    @property
    def most(self) -> int:
        """How many."""

    @property
    def seconds(self) -> float | None:
        """Within which time; None: at once."""

    @property
    def told(self) -> str:
        """For people."""


Limits = Callable[[str, str | None, bool], Sequence[Limit]]
"""The limits of a task by its agent, its key and whether it begins, in the order in which they are to be locked."""


class _Full(Exception):
    """A limit is reached: nothing is claimed."""


def claim(db: Database, task_id: str, worker: UUID, known: str, lease: float, limits: Limits) -> Claimed | None:
    """Claim a task together with a slot under each of its limits; None when it is not there, or one of them is reached.
    A task that is to be cancelled needs none. What is held back is rung again when there is room.
    """
    names = {"id": task_id, "worker": worker, "known": known, "lease": lease}
    try:
        with db.transaction() as connection:
            found = quick(connection, FLOWING, names)
            if not found:
                return None
            *row, key, cancelled, begins = found[0]
            held = claimed(task_id, worker, row)
            if cancelled != "t":
                _take(connection, held, limits(held.agent, key, begins == "t"))
            return held
    except _Full:
        not_rung(db, task_id)
        return None


def _take(connection: Connection, held: Claimed, limits: Sequence[Limit]) -> None:
    for limit in limits:
        names = {"tenant": held.tenant, "scope": limit.scope, "most": limit.most, "seconds": limit.seconds,
                 "id": held.id, "fence": held.fence}  # fmt: skip
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 14))", (f"{held.tenant}\x1f{limit.scope}",)
        )
        if not connection.execute(TAKE, names).fetchone():
            raise _Full


def held_by(db: Database, task_id: str, limits: Limits) -> list[dict[str, Any]]:
    """The limits that keep a task waiting now: what is limited, how many are taken, and when there is room again, where
    that is a matter of time.
    """
    found: list[dict[str, Any]] = []
    with db.connection() as connection:
        for task in rows(connection, WAITING, {"id": task_id}):
            for limit in limits(task["agent"], task["flow_key"], task["begins"]):
                used = rows(connection, USED, {"tenant": task["tenant"], "scope": limit.scope})[0]
                if used["n"] >= limit.most:
                    until: datetime | None = used["until"]
                    found.append({"scope": limit.scope, "limit": limit.told, "taken": used["n"], "until": until})
    return found
