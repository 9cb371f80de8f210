"""The inbox: what reached a task and is not absorbed yet. Whoever adds to it locks the task row first.

An arrival locks the row, then inserts, then counts; a commit subtracts exactly the rows it absorbed. So a task that
goes to sleep with something pending is made ready by its own commit, and no wake-up is lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from twelvefold.text import clean

from .database import Connection, Database

TEXTS = ("source", "key", "type", "reason", "sender", "conversation", "proof", "wait_key")
ABSORB_AT_ONCE = 100

PENDING = """
SELECT id, kind, source, key, payload, sender, wait_key, cleaned, proof FROM arrivals
 WHERE task_id = %s AND absorbed_seq IS NULL AND state = 'accepted' ORDER BY id LIMIT %s
"""

INSERT = """
INSERT INTO arrivals (tenant, source, key, type, kind, task_id, state, reason, payload, raw, headers, sender,
                      conversation, proof, wait_key, cleaned)
VALUES (%(tenant)s, %(source)s, %(key)s, %(type)s, %(kind)s, %(task_id)s, %(state)s, %(reason)s, %(payload)s, %(raw)s,
        %(headers)s, %(sender)s, %(conversation)s, %(proof)s, %(wait_key)s, %(cleaned)s)
ON CONFLICT (tenant, source, key) DO NOTHING RETURNING id
"""

AGAIN = """
UPDATE arrivals SET type = %(type)s, kind = %(kind)s, task_id = %(task_id)s, state = %(state)s, reason = %(reason)s,
       payload = %(payload)s, wait_key = %(wait_key)s, cleaned = %(cleaned)s
 WHERE tenant = %(tenant)s AND id = %(again)s AND task_id IS NULL AND state IN ('failed', 'ignored')
RETURNING id
"""
"""What was stored and opened nothing is read anew; of two who do so at once the second finds it done."""

UNREAD = """
SELECT id, tenant, source, key, type, payload, raw, headers, sender, conversation, proof, state, reason FROM arrivals
 WHERE tenant = coalesce(%(tenant)s, tenant) AND id = %(id)s
"""

COUNT = """
UPDATE agent_tasks
   SET inbox_pending = inbox_pending + 1, nudged_at = CASE WHEN status = 'ready' THEN nudged_at END,
       status = CASE WHEN status IN ('waiting', 'done') THEN 'ready' ELSE status END,
       lane = CASE WHEN %(person)s THEN 'answers' ELSE lane END
 WHERE id = %(id)s
"""


CANCEL = """
UPDATE agent_tasks SET cancel_asked = clock_timestamp(), attempts = 0, nudged_at = NULL,
       status = CASE WHEN status = 'quarantined' THEN 'ready' ELSE status END
 WHERE id = %s AND cancel_asked IS NULL AND status NOT IN ('done', 'failed', 'cancelled')
"""


GO_ON = """
UPDATE agent_tasks SET attempts = 0, nudged_at = NULL,
       status = CASE WHEN status = 'quarantined' THEN 'ready' ELSE status END
 WHERE id = %s AND (status = 'quarantined' OR (status = 'waiting' AND waiting_for IN ('operator', 'retry')))
"""

WAITS_IN = """
SELECT EXISTS (SELECT FROM arrivals WHERE task_id = %s AND absorbed_seq IS NULL AND state = 'accepted'
                  AND kind = 'resume' AND payload ->> 'verb' = %s)
"""

PAYLOAD = """
SELECT payload FROM arrivals r
 WHERE r.tenant = (SELECT tenant FROM agent_tasks WHERE id = %s) AND r.source = %s AND r.key = %s
"""


@dataclass(frozen=True, slots=True)
class Pending:
    """One arrival that waits to be absorbed."""

    id: int
    kind: str
    source: str
    key: str
    payload: Any
    sender: str | None
    wait_key: str | None
    cleaned: int
    proof: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One arrival to be stored. `payload` is JSON data; `raw` the bytes it came from."""

    tenant: str
    source: str
    key: str
    kind: str
    type: str = ""
    task_id: str | None = None
    state: str = "accepted"
    reason: str | None = None
    payload: Any = None
    raw: bytes | None = None
    headers: dict[str, str] | None = None
    sender: str | None = None
    conversation: str | None = None
    proof: str | None = None
    wait_key: str | None = None
    cleaned: int = 0
    again: int | None = None
    """The id of the row that this is, where it was stored before and is read anew."""


def pending(db: Database, task_id: str) -> list[Pending]:
    """The oldest arrivals that wait, at most 100."""
    with db.looking() as connection:
        return [Pending(*row) for row in connection.execute(PENDING, (task_id, ABSORB_AT_ONCE)).fetchall()]


def insert(connection: Connection, entry: Entry) -> int | None:
    """Store an arrival; None when its tenant, source and key are known already, or it was read anew meanwhile."""
    names = {name: getattr(entry, name) for name in Entry.__slots__}
    names |= {name: clean(names[name]) for name in TEXTS if names[name] is not None}
    names["payload"] = json.dumps(entry.payload, default=str)
    names["headers"] = None if entry.headers is None else json.dumps(entry.headers)
    row = connection.execute(INSERT if entry.again is None else AGAIN, names).fetchone()
    return None if row is None else int(row[0])


def count(connection: Connection, task_id: str, *, person: bool) -> None:
    """Count one arrival on its (locked) task; a waiting or done task becomes ready. `person`: someone is waiting."""
    connection.execute(COUNT, {"id": task_id, "person": person})


def ask_cancel(connection: Connection, task_id: str) -> bool:
    """Mark the (locked) task as cancelled and wake it where it lies quarantined; False when that was asked before."""
    return connection.execute(CANCEL, (task_id,)).rowcount == 1


def let_go_on(connection: Connection, task_id: str) -> bool:
    """Wake the (locked) task where it lies quarantined, and forget its deaths; False when it needs no retry."""
    return connection.execute(GO_ON, (task_id,)).rowcount == 1


def waits_in(connection: Connection, task_id: str, verb: str) -> bool:
    """Whether an operator's verb, retry or raise, waits to be absorbed by the task."""
    row = connection.execute(WAITS_IN, (task_id, verb)).fetchone()
    return row is not None and bool(row[0])


def payload(connection: Connection, task_id: str, source: str, key: str) -> Any:
    """What an arrival of the task's tenant said; None when there is none of this key."""
    row = connection.execute(PAYLOAD, (task_id, source, key)).fetchone()
    return None if row is None else row[0]


def lies_ahead(connection: Connection, at: datetime) -> bool:
    """Whether this time lies ahead by the database's clock."""
    row = connection.execute("SELECT %s > clock_timestamp()", (at,)).fetchone()
    return row is not None and bool(row[0])


def lock(connection: Connection, task_id: str) -> tuple[str, str, str] | None:
    """Lock the task row: its tenant, agent and status, or None when there is no such task."""
    row = connection.execute(
        "SELECT tenant, agent, status FROM agent_tasks WHERE id = %s FOR UPDATE", (task_id,)
    ).fetchone()
    return None if row is None else (row[0], row[1], row[2])
