"""Who is alive: one row per worker process incarnation, row leases for the sweeper, and freeing what the dead held."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from uuid import UUID

from .database import Database

# `now()` is when this transaction began: a statement that hung in an outage comes too late to say who is dead
FREE_DEAD = """
WITH dead AS (
    SELECT id FROM workers_alive
     WHERE heartbeat < clock_timestamp() - make_interval(secs => %(dead_after)s)
       AND clock_timestamp() - now() <= make_interval(secs => %(patience)s)),
freed AS (
    UPDATE agent_tasks t SET worker_id = NULL, claimed_until = NULL, nudged_at = NULL
     WHERE t.id IN (SELECT x.id FROM agent_tasks x
                     WHERE x.status = 'ready' AND x.worker_id IS NOT NULL
                       AND (x.worker_id IN (SELECT id FROM dead) OR x.claimed_until < clock_timestamp())
                     ORDER BY x.id FOR UPDATE SKIP LOCKED)
    RETURNING t.id)
SELECT (SELECT count(*) FROM freed)
"""

BURY = """
DELETE FROM workers_alive w WHERE heartbeat < clock_timestamp() - interval '1 hour'
   AND NOT EXISTS (SELECT FROM agent_tasks t WHERE t.status = 'ready' AND t.worker_id = w.id)
"""

LEASE = """
INSERT INTO sweeps (name, holder, until) VALUES (%(name)s, %(holder)s, clock_timestamp() + make_interval(secs => %(s)s))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
 WHERE sweeps.holder = excluded.holder OR sweeps.until < clock_timestamp()
RETURNING name
"""

SLOTS = """
SELECT lane, sum(n::int), count(*) FROM workers_alive, jsonb_each_text(slots) AS s (lane, n)
 WHERE heartbeat > clock_timestamp() - make_interval(secs => %(dead_after)s) GROUP BY lane
"""


def register(db: Database, worker: UUID, slots: dict[str, int], known: str) -> None:
    """Write the row of this incarnation."""
    with db.connection() as connection:
        connection.execute(
            "INSERT INTO workers_alive (id, host, pid, slots, agents) VALUES (%s, %s, %s, %s, %s)",
            (worker, socket.gethostname(), os.getpid(), json.dumps(slots), known),
        )


def beat(db: Database, worker: UUID) -> bool:
    """Say that this incarnation lives; False when its row is gone."""
    with db.connection() as connection:
        return (
            connection.execute(
                "UPDATE workers_alive SET heartbeat = clock_timestamp() WHERE id = %s", (worker,)
            ).rowcount
            == 1
        )


def leave(db: Database, worker: UUID) -> int:
    """Give back every claim of this incarnation, as no death, and take its row away: how many claims there were."""
    with db.transaction() as connection:
        freed = connection.execute(
            "UPDATE agent_tasks SET worker_id = NULL, claimed_until = NULL, nudged_at = NULL,"
            " attempts = greatest(attempts - 1, 0) WHERE status = 'ready' AND worker_id = %s",
            (worker,),
        ).rowcount
        connection.execute("DELETE FROM workers_alive WHERE id = %s", (worker,))
    return freed


def free_dead(db: Database, dead_after: float, patience: float = 1.0, sure: Callable[[], bool] = lambda: True) -> int:
    """Free what dead incarnations hold and what is held past its time: how many claims.

    `sure` is asked once the database has answered; what it says holds for `patience` seconds by the database's clock.
    """
    with db.transaction() as connection:
        if not sure():
            return 0
        freed = connection.execute(FREE_DEAD, {"dead_after": dead_after, "patience": patience}).fetchone()
        connection.execute(BURY)
    return int(freed[0]) if freed else 0


def lease(db: Database, name: str, holder: UUID, seconds: float) -> bool:
    """Take or renew a row lease; False while another holds it."""
    with db.connection() as connection:
        names = {"name": name, "holder": holder, "s": seconds}
        return connection.execute(LEASE, names).fetchone() is not None


def skew(db: Database, clock: Callable[[], float] = time.time) -> float:
    """How many seconds this machine's clock is ahead of the database's."""
    with db.connection() as connection:
        before = clock()
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float").fetchone()
        return (before + clock()) / 2 - (row[0] if row else 0.0)


def windows(db: Database, dead_after: float) -> dict[str, int]:
    """How many messages may stand in each lane: twice its slots and one per process."""
    with db.connection() as connection:
        found = connection.execute(SLOTS, {"dead_after": dead_after}).fetchall()
    return {lane: 2 * int(slots) + int(processes) for lane, slots, processes in found}
