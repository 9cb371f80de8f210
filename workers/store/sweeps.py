"""What a sweep reads and rings: ready tasks fairly by tenant, due deadlines, outbox rows, ended tasks' late mail.

Deadlines compare with `statement_timestamp()`: with `clock_timestamp()`, which is volatile, no index would be used.
"""

from __future__ import annotations

from .claims import PAUSED
from .database import Database
from .outbox import BEHIND

SUSPECT = f"""
SELECT t.id FROM agent_tasks t
 WHERE t.status = 'ready' AND t.attempts >= 2 AND t.worker_id IS NULL
   AND (t.cancel_asked IS NOT NULL OR (t.paused_at IS NULL AND NOT {PAUSED}))
   AND NOT EXISTS (SELECT FROM agent_tasks u
                    WHERE u.status = 'ready' AND u.attempts >= 2
                      AND CASE WHEN u.worker_id IS NULL
                               THEN u.nudged_at >= clock_timestamp() - make_interval(secs => %(renudge)s)
                               ELSE u.attempts > 2 END)
 ORDER BY t.nudged_at NULLS FIRST, t.id LIMIT 1
"""
"""Who was there when a worker died twice is tried alone the third time: one of them kills, the others only stood by."""

# a tenant's place counts what it has under way; between equals the dice decide, or the older backlog would always win;
# of each tenant no more is looked at than there is room, so that a ring costs about the same however long the line is
RING = f"""
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM agent_tasks WHERE status = 'ready' ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT n.tenant FROM agent_tasks n WHERE n.status = 'ready' AND n.tenant > p.tenant
             ORDER BY n.tenant LIMIT 1)
      FROM tenants p WHERE p.tenant IS NOT NULL),
busy AS (
    SELECT tenant, count(*) AS n FROM agent_tasks
     WHERE status = 'ready' AND lane = %(lane)s
       AND (worker_id IS NOT NULL OR nudged_at >= clock_timestamp() - make_interval(secs => %(renudge)s))
     GROUP BY tenant),
open AS (
    SELECT x.id, x.priority,
           row_number() OVER (PARTITION BY p.tenant ORDER BY x.priority DESC, x.id) + coalesce(b.n, 0) AS place
      FROM tenants p LEFT JOIN busy b ON b.tenant = p.tenant CROSS JOIN LATERAL (
           SELECT t.id, t.priority FROM agent_tasks t
            WHERE t.status = 'ready' AND t.tenant = p.tenant AND t.worker_id IS NULL AND t.lane = %(lane)s
              AND (t.nudged_at IS NULL OR t.nudged_at < clock_timestamp() - make_interval(secs => %(renudge)s))
              AND (t.attempts < 2 OR t.id = ({SUSPECT}))
              AND (t.cancel_asked IS NOT NULL OR (t.paused_at IS NULL AND NOT {PAUSED}))
            ORDER BY t.priority DESC, t.id LIMIT %(room)s) x),
chosen AS (
    SELECT t.id FROM agent_tasks t
     WHERE t.id IN (SELECT id FROM open ORDER BY place, priority DESC, random() LIMIT %(room)s)
     ORDER BY t.id FOR UPDATE SKIP LOCKED)
UPDATE agent_tasks t SET nudged_at = clock_timestamp() FROM chosen
 WHERE t.id = chosen.id
RETURNING t.id::text, t.agent, t.current_step, coalesce(t.state -> 'call' ->> 'tool', 'model')
"""

DUE = """
WITH due AS (
    SELECT id FROM agent_tasks WHERE status = 'waiting' AND due_at <= statement_timestamp()
     ORDER BY due_at LIMIT 1000)
UPDATE agent_tasks t SET status = 'ready', nudged_at = NULL
 WHERE t.id IN (SELECT x.id FROM agent_tasks x JOIN due USING (id) ORDER BY x.id FOR UPDATE OF x SKIP LOCKED)
   AND t.status = 'waiting'
"""

LATE = """
WITH late AS (
    SELECT r.id, r.task_id FROM arrivals r
     WHERE r.absorbed_seq IS NULL AND r.state = 'accepted'
       AND (SELECT k.status FROM agent_tasks k WHERE k.id = r.task_id) IN ('failed', 'cancelled')
     ORDER BY r.id LIMIT 100),
held AS (
    SELECT k.id, k.status FROM agent_tasks k WHERE k.id IN (SELECT task_id FROM late)
     ORDER BY k.id FOR UPDATE SKIP LOCKED),
gone AS (
    UPDATE arrivals r SET state = 'ignored', reason = h.status FROM late l JOIN held h ON h.id = l.task_id
     WHERE r.id = l.id AND r.state = 'accepted' AND r.absorbed_seq IS NULL
    RETURNING r.task_id),
counted AS (
    UPDATE agent_tasks t SET inbox_pending = inbox_pending - g.n
      FROM (SELECT task_id, count(*) AS n FROM gone GROUP BY task_id) g WHERE t.id = g.task_id)
SELECT count(*) FROM gone
"""

UNCLAIMED = """
UPDATE arrivals SET state = 'ignored', reason = 'unclaimed'
 WHERE id IN (SELECT id FROM arrivals WHERE state = 'unclaimed'
                 AND received_at < statement_timestamp() - interval '24 hours' LIMIT 100)
"""

LETTERS = f"""
WITH chosen AS (
    SELECT o.id FROM outbox o
     WHERE o.state = 'pending' AND o.due_at <= statement_timestamp()
       AND (o.nudged_at IS NULL OR o.nudged_at < clock_timestamp() - make_interval(secs => %(renudge)s))
       AND NOT {BEHIND}
     ORDER BY o.due_at LIMIT %(room)s FOR UPDATE SKIP LOCKED)
UPDATE outbox o SET nudged_at = clock_timestamp() FROM chosen WHERE o.id = chosen.id
RETURNING o.id::text, o.channel, o.n
"""

LOST_LETTERS = """
UPDATE outbox SET state = CASE WHEN channel = 'task' OR again THEN 'pending' ELSE 'unknown' END, nudged_at = NULL,
       doubtful = again, error = 'the worker was lost while sending',
       settled_at = CASE WHEN channel <> 'task' AND NOT again THEN clock_timestamp() END
 WHERE state = 'sending' AND claimed_until < statement_timestamp()
RETURNING state
"""


def ring(db: Database, lane: str, room: int, renudge: float) -> list[tuple[str, str]]:
    """Ready tasks nobody was told of, fairly by tenant, then priority, then age: (id, what to show) pairs."""
    if room <= 0:
        return []
    with db.connection() as connection:
        found = connection.execute(RING, {"lane": lane, "room": room, "renudge": renudge}).fetchall()
    return [(row[0], shown(*row)) for row in found]


def unring(db: Database, ids: list[str]) -> None:
    """Nobody was told of these after all; the next sweep takes them again."""
    if ids:
        with db.connection() as connection:
            connection.execute(
                "UPDATE agent_tasks SET nudged_at = NULL"
                " WHERE id = ANY(%s::uuid[]) AND status = 'ready' AND worker_id IS NULL",
                (ids,),
            )


def shown(task_id: str, agent: str, step: int, wants: str) -> str:
    """One readable line for operators: agent, task, step, reason; never content."""
    return f"{agent} {task_id[:13]} step {step + 1} {wants}"


def make_due(db: Database) -> int:
    """Waiting tasks whose deadline has passed become ready: how many."""
    with db.connection() as connection:
        return connection.execute(DUE).rowcount


def set_aside(db: Database) -> int:
    """Arrivals that nobody will absorb any more are marked with the reason: how many."""
    with db.connection() as connection:
        late = connection.execute(LATE).fetchone()
        return (late[0] if late else 0) + connection.execute(UNCLAIMED).rowcount


def give_up(db: Database) -> int:
    """Letters whose worker was lost while sending: how many became `unknown`. The others are sent again: news for a
    task, and what its channel looks for before it sends once more.
    """
    with db.connection() as connection:
        return [state for (state,) in connection.execute(LOST_LETTERS).fetchall()].count("unknown")


def letters(db: Database, room: int, renudge: float) -> list[tuple[str, str]]:
    """Outbox rows to be pushed whose predecessors in the conversation are settled: (id, what to show) pairs."""
    with db.connection() as connection:
        found = connection.execute(LETTERS, {"room": room, "renudge": renudge}).fetchall() if room > 0 else []
    return [(row[0], f"{row[1]} {row[0][:13]} n {row[2]}") for row in found]
