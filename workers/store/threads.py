"""Tasks as people look at them: one, a list, its events, what it asks, what reached us and what goes out. Reads only.

`tenant` is whose rows may be seen; None, for the command line alone, is everybody's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from twelvefold.verdict import OPEN

from .database import Database

TASK = """
SELECT id::text, tenant, agent, status, waiting_for, current_step, seq, business_entity_id, reason, outcome, paused_at,
       cancel_asked, due_at, created_at, finished_at, state::text
  FROM agent_tasks WHERE id = %(id)s AND tenant = coalesce(%(tenant)s, tenant)
"""

TASKS = """
SELECT id::text, tenant, agent, status, waiting_for, current_step, business_entity_id, reason, paused_at, created_at,
       finished_at
  FROM agent_tasks
 WHERE tenant = coalesce(%(tenant)s, tenant) AND (%(agents)s::text[] IS NULL OR agent = ANY(%(agents)s))
   AND status = coalesce(%(status)s, status)
   AND (%(waiting_for)s::text IS NULL OR (status = 'waiting' AND waiting_for = %(waiting_for)s))
   AND (%(business_ref)s::text IS NULL OR business_entity_id = %(business_ref)s)
   AND (%(before)s::uuid IS NULL OR id < %(before)s)
 ORDER BY id DESC LIMIT %(most)s
"""

EVENTS = """
SELECT e.seq, e.at, e.type, e.version, e.data FROM agent_events e JOIN agent_tasks t ON t.id = e.task_id
 WHERE e.task_id = %(id)s AND t.tenant = coalesce(%(tenant)s, t.tenant) AND e.seq > %(after)s
 ORDER BY e.seq LIMIT %(most)s
"""

ASKED = """
SELECT call, asked, digest, target, risk, state, deadline, created_at, decided_by, decided_at,
       kind, state = ANY(%(open)s) AND deadline > clock_timestamp() AS open,
       (SELECT count(*) FROM votes v
         WHERE v.tenant = a.tenant AND v.task_id = a.task_id AND v.call = a.call AND v.asked = a.asked) AS votes,
       coalesce((a.verdict ->> 'quorum')::int, 1) AS quorum, a.verdict::text, a.escalated_at IS NOT NULL AS escalated,
       coalesce((a.verdict ->> 'four_eyes')::boolean, false) AS four_eyes
  FROM approvals a WHERE a.tenant = %(tenant)s AND a.task_id = %(id)s AND asked >= %(opened)s ORDER BY asked
"""

APPROVALS = """
SELECT a.task_id::text, a.tenant, t.agent, a.call, t.state -> 'call' ->> 'tool' AS tool,
       t.state -> 'call' ->> 'args' AS args, a.digest, a.target, a.risk, a.kind, a.deadline, a.created_at,
       t.business_entity_id, (SELECT count(*) FROM votes v
         WHERE v.tenant = a.tenant AND v.task_id = a.task_id AND v.call = a.call AND v.asked = a.asked) AS votes,
       coalesce((a.verdict ->> 'quorum')::int, 1) AS quorum, a.verdict::text,
       a.escalated_at IS NOT NULL AS escalated
  FROM approvals a JOIN agent_tasks t ON t.id = a.task_id AND t.tenant = a.tenant
 WHERE a.state = ANY(%(open)s) AND a.deadline > clock_timestamp() AND a.tenant = coalesce(%(tenant)s, a.tenant)
   AND (%(agents)s::text[] IS NULL OR t.agent = ANY(%(agents)s))
 ORDER BY a.created_at LIMIT %(most)s
"""

LETTERS = """
SELECT id::text, tenant, task_id::text, channel, recipient, n, state, attempts, due_at, error, receipt, created_at
  FROM outbox
 WHERE tenant = coalesce(%(tenant)s, tenant) AND (%(task)s::uuid IS NULL OR task_id = %(task)s)
   AND state = coalesce(%(state)s, state)
 ORDER BY created_at DESC, id LIMIT %(most)s
"""

ARRIVALS = """
SELECT id, tenant, source, type, key, kind, state, reason, task_id::text, sender, cleaned, received_at FROM arrivals
 WHERE tenant = coalesce(%(tenant)s, tenant) AND state = coalesce(%(state)s, state)
   AND source = coalesce(%(source)s, source)
 ORDER BY id DESC LIMIT %(most)s
"""

ARRIVAL = """
SELECT task_id::text, state, reason, raw, payload, wait_key, absorbed_seq FROM arrivals
 WHERE tenant = %(tenant)s AND source = %(source)s AND key = %(key)s
"""

RESTING = """
SELECT id::text FROM agent_tasks
 WHERE id = ANY(%(ids)s::uuid[])
   AND (status IN ('done', 'failed', 'cancelled', 'quarantined')
        OR (status = 'waiting' AND waiting_for IN ('approval', 'answer', 'budget', 'operator', 'settle')))
"""


MOVED = """
SELECT f.id || ' ' || f.seq AS mark FROM unnest(%(ids)s::uuid[], %(seqs)s::int[]) AS f (id, seq)
  JOIN agent_tasks t ON t.id = f.id WHERE t.seq > f.seq
"""


def task(db: Database, task_id: str, tenant: str | None) -> dict[str, Any] | None:
    """The row of one task with its state as JSON text; None when this tenant has none of this id."""
    found = db.rows(TASK, {"id": task_id, "tenant": tenant})
    return found[0] if found else None


def tasks(
    db: Database,
    tenant: str | None = None,
    *,
    agents: Collection[str] | None = None,
    status: str | None = None,
    waiting_for: str | None = None,
    business_ref: str | None = None,
    before: str | None = None,
    most: int = 50,
) -> list[dict[str, Any]]:
    """The newest tasks of the agents that are named (None: all); `before` is the id that the last page ended with."""
    names = {
        "tenant": tenant, "agents": None if agents is None else list(agents), "status": status,
        "waiting_for": waiting_for, "business_ref": business_ref, "before": before, "most": most,
    }  # fmt: skip
    return db.rows(TASKS, names)


def events(
    db: Database, task_id: str, tenant: str | None = None, *, after: int = 0, most: int = 100_000
) -> list[dict[str, Any]]:
    """The events of a task after a seq, in order."""
    return db.rows(EVENTS, {"id": task_id, "tenant": tenant, "after": after, "most": most})


def asked(db: Database, task_id: str, tenant: str, opened: int) -> list[dict[str, Any]]:
    """What a run has asked people, in order: `opened` is the seq it began with. `open`: it can be decided now."""
    return db.rows(ASKED, {"id": task_id, "tenant": tenant, "opened": opened, "open": [*OPEN]})


def approvals(
    db: Database, tenant: str | None = None, *, agents: Collection[str] | None = None, most: int = 200
) -> list[dict[str, Any]]:
    """The questions that wait for a decision, oldest first."""
    named = None if agents is None else list(agents)
    return db.rows(APPROVALS, {"tenant": tenant, "agents": named, "open": [*OPEN], "most": most})


def letters(
    db: Database, tenant: str | None = None, *, task_id: str | None = None, state: str | None = None, most: int = 50
) -> list[dict[str, Any]]:
    """The newest letters of the outbox, without what they say."""
    return db.rows(LETTERS, {"tenant": tenant, "task": task_id, "state": state, "most": most})


def arrivals(
    db: Database, tenant: str | None = None, *, state: str | None = None, source: str | None = None, most: int = 50
) -> list[dict[str, Any]]:
    """What reached us, newest first, with what became of it and why; without what it says."""
    return db.rows(ARRIVALS, {"tenant": tenant, "state": state, "source": source, "most": most})


def arrival(db: Database, tenant: str, source: str, key: str) -> dict[str, Any] | None:
    """What is known of one arrival by its key."""
    found = db.rows(ARRIVAL, {"tenant": tenant, "source": source, "key": key})
    return found[0] if found else None


def resting(db: Database, ids: Sequence[str]) -> set[str]:
    """Which of these tasks go on only when a person does something."""
    return {row["id"] for row in db.rows(RESTING, {"ids": list(ids)})}


def moved(db: Database, marks: Sequence[str]) -> set[str]:
    """Of marks `ID SEQ`, those whose task has events after this seq."""
    known = [mark.split() for mark in marks]
    names = {"ids": [id_ for id_, _ in known], "seqs": [int(seq) for _, seq in known]}
    return {row["mark"] for row in db.rows(MOVED, names)}
