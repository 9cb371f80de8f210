"""The outbox with honest states: pending, sending, sent, failed, unknown. Claimed by update, settled by claim token.

A row is taken only when no smaller `n` of its conversation holds it up, and by its state, never by a cursor over ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from .database import Connection, Database, rows

OVERTAKEN_AFTER = "interval '15 min'"
"""So long after its first attempt a letter no longer holds up those behind it."""

BEHIND = f"""EXISTS (
    SELECT FROM outbox p WHERE p.conversation = o.conversation AND p.tenant = o.tenant AND p.n < o.n
       AND p.state IN ('pending', 'sending')
       AND (p.state = 'sending' OR p.attempts = 0 OR p.key = o.payload ->> 'edits'
            OR coalesce(p.payload -> 'card', p.payload -> 'question') ->> 'asked' = o.payload ->> 'over'
            OR coalesce(p.first_at, p.created_at) > statement_timestamp() - {OVERTAKEN_AFTER}))"""
"""Whether a row `o` has to wait for another of its conversation: for the one it edits, whatever that one's age."""

# the row itself first, those that it passes by after it: so two takes never wait for each other in a circle
TAKE = f"""
WITH taken AS (
    UPDATE outbox o SET state = 'sending', claim = %(claim)s, attempts = attempts + 1,
           first_at = coalesce(first_at, clock_timestamp()), again = o.channel = ANY(%(again)s),
           claimed_until = clock_timestamp() + make_interval(secs => %(seconds)s)
     WHERE o.id = %(id)s AND (o.state = 'pending' OR (o.state = 'sending' AND o.claim = %(claim)s))
       AND o.due_at <= clock_timestamp() AND NOT {BEHIND}
    RETURNING o.*),
passed AS (
    UPDATE outbox p SET overtaken_at = clock_timestamp() FROM taken t
     WHERE p.tenant = t.tenant AND p.conversation = t.conversation AND p.n < t.n AND p.state = 'pending'
       AND p.overtaken_at IS NULL)
SELECT id::text, tenant, task_id::text, channel, recipient, key, payload, attempts, created_at, seq, doubtful FROM taken
"""

# a server may answer after the sweep has given the letter up: what then is known for good is worth more than a guess
SETTLE = """
UPDATE outbox SET state = %(state)s, receipt = %(receipt)s,
       error = CASE WHEN %(back)s = 0 THEN %(error)s ELSE error END, claim = NULL, claimed_until = NULL,
       nudged_at = NULL, due_at = clock_timestamp() + make_interval(secs => %(wait)s),
       attempts = attempts - %(back)s, doubtful = (doubtful OR %(doubtful)s) AND %(state)s = 'pending',
       settled_at = CASE WHEN %(state)s = 'pending' THEN NULL ELSE clock_timestamp() END
 WHERE id = %(id)s AND claim = %(claim)s
   AND (state = 'sending' OR (state IN ('unknown', 'pending') AND %(state)s IN ('sent', 'failed')))
"""

EARLIER = """
SELECT p.id::text, p.key, p.payload ->> 'subject' AS subject, p.receipt,
       (coalesce(p.payload -> 'card', p.payload -> 'question') ->> 'asked')::int AS asks
  FROM outbox o JOIN outbox p ON p.conversation = o.conversation AND p.tenant = o.tenant AND p.n < o.n
 WHERE o.id = %(id)s AND p.state IN ('sent', 'unknown') ORDER BY p.n
"""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A letter of the same conversation that went out before, or may have. `asks`: which question it was, if any."""

    id: str
    key: str
    subject: str | None
    receipt: str | None
    asks: int | None


@dataclass(frozen=True, slots=True)
class Taken:
    """An outbox row in one relay's hand."""

    id: str
    tenant: str
    task_id: str
    channel: str
    recipient: str
    key: str
    payload: dict[str, Any]
    attempts: int
    created_at: datetime
    seq: int
    """Of the event that it tells."""
    doubtful: bool
    """An earlier attempt may have gone out."""
    claim: UUID


@dataclass(frozen=True, slots=True)
class Became:
    """What became of a row: its state and what is known. `wait`: seconds until the next try, when it is pending again.
    `put_back`: it was not tried. `doubtful`: it may have gone out.
    """

    state: str
    receipt: str | None = None
    error: str | None = None
    wait: float = 0
    put_back: bool = False
    doubtful: bool = False


def take(db: Database, letter_id: str, claim: UUID, seconds: float, again: Sequence[str] = ()) -> Taken | None:
    """Take a pending row whose turn it is; None when it is not pending, not due, or behind another.

    `again`: the channels in which a letter that may have gone out is looked for, or does no harm twice. May be repeated
    with the same claim when its answer was lost.
    """
    names = {"id": letter_id, "claim": claim, "seconds": seconds, "again": list(again)}
    with db.connection() as connection:
        row = connection.execute(TAKE, names).fetchone()
    return None if row is None else Taken(*(*row, claim))


def earlier(db: Database, taken: Taken) -> list[Earlier]:
    """What went out in the same conversation, oldest first. It is the same at every attempt: the order is kept."""
    with db.connection() as connection:
        return [Earlier(**row) for row in rows(connection, EARLIER, {"id": taken.id})]


def settle(connection: Connection, taken: Taken, became: Became) -> bool:
    """Say what became of a taken row; False when the claim is no longer ours."""
    names = {"id": taken.id, "claim": taken.claim, **asdict(became), "back": int(became.put_back)}
    return connection.execute(SETTLE, names).rowcount == 1


DEAD = """
SELECT id::text, tenant, task_id::text, channel, recipient, state, attempts, error, created_at, settled_at, overtaken_at
  FROM outbox
 WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND state IN ('failed', 'unknown')
 ORDER BY settled_at DESC LIMIT %(most)s
"""

REQUEUE = """
UPDATE outbox SET state = 'pending', attempts = 0, first_at = NULL, due_at = clock_timestamp(), nudged_at = NULL,
       settled_at = NULL, claim = NULL, doubtful = doubtful OR state = 'unknown'
 WHERE id = %(id)s AND (state = 'failed' OR (state = 'unknown' AND %(twice)s))
"""

REROUTE = """
WITH t AS (UPDATE agent_tasks SET outbox_n = outbox_n + 1 WHERE id = %(task)s RETURNING id, outbox_n)
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
SELECT %(new)s, o.tenant, o.task_id, o.seq, %(channel)s, %(recipient)s,
       o.task_id || ':' || %(channel)s || ':' || %(recipient)s, t.outbox_n, o.key || ':instead', %(payload)s
  FROM t, outbox o WHERE o.id = %(id)s
ON CONFLICT (tenant, key) DO NOTHING
"""


def dead(db: Database, tenant: str | None = None, *, most: int = 50) -> list[dict[str, Any]]:
    """Letters that nobody tries any more, newest first: `failed`, and `unknown` ones that may have gone out."""
    return db.rows(DEAD, {"tenant": tenant, "most": most})


def requeue(db: Database, letter_id: str, *, twice: bool = False) -> bool:
    """Let a dead letter go again under its identity, from the first attempt on; False when it is not dead.

    `twice`: also one that is `unknown` and may arrive a second time.
    """
    with db.connection() as connection:
        return connection.execute(REQUEUE, {"id": letter_id, "twice": twice}).rowcount == 1


def reroute(connection: Connection, taken: Taken, channel: str, recipient: str, payload: dict[str, Any]) -> bool:
    """Write the same letter to somebody else, in that conversation; False when it stands there or has no task."""
    names = {
        "task": taken.task_id, "id": taken.id, "new": uuid5(NAMESPACE_OID, f"{taken.key}:instead"), "channel": channel,
        "recipient": recipient, "payload": json.dumps(payload),
    }  # fmt: skip
    return connection.execute(REROUTE, names).rowcount == 1
