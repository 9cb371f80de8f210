"""The outbox with honest states: pending, sending, sent, failed, unknown. Claimed by update, settled by claim token.

A row is taken only when no smaller `n` of its conversation is open, and by its state, never by a cursor over ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from .database import Connection, Database, rows

TAKE = """
UPDATE outbox o SET state = 'sending', claim = %(claim)s, attempts = attempts + 1,
       claimed_until = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE o.id = %(id)s AND (o.state = 'pending' OR (o.state = 'sending' AND o.claim = %(claim)s))
   AND o.due_at <= clock_timestamp()
   AND NOT EXISTS (SELECT FROM outbox p WHERE p.conversation = o.conversation AND p.tenant = o.tenant
                      AND p.n < o.n AND p.state IN ('pending', 'sending'))
RETURNING o.id::text, o.tenant, o.task_id::text, o.channel, o.recipient, o.key, o.payload, o.attempts, o.created_at
"""

# a server may answer after the sweep has given the letter up: what then is known for good is worth more than `unknown`
SETTLE = """
UPDATE outbox SET state = %(state)s, receipt = %(receipt)s, error = %(error)s, claim = NULL, claimed_until = NULL,
       nudged_at = NULL, due_at = clock_timestamp() + make_interval(secs => %(wait)s),
       settled_at = CASE WHEN %(state)s = 'pending' THEN NULL ELSE clock_timestamp() END
 WHERE id = %(id)s AND claim = %(claim)s
   AND (state = 'sending' OR (state = 'unknown' AND %(state)s IN ('sent', 'failed')))
"""

EARLIER = """
SELECT p.id::text, p.payload ->> 'subject' AS subject,
       coalesce(p.payload -> 'card', p.payload -> 'question') IS NOT NULL AS asks
  FROM outbox o JOIN outbox p ON p.conversation = o.conversation AND p.tenant = o.tenant AND p.n < o.n
 WHERE o.id = %(id)s AND p.state IN ('sent', 'unknown') ORDER BY p.n
"""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A letter of the same conversation that went out before, or may have. `asks`: it was a question."""

    id: str
    subject: str | None
    asks: bool


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
    claim: UUID


def take(db: Database, letter_id: str, claim: UUID, seconds: float) -> Taken | None:
    """Take a pending row whose turn it is; None when it is not pending, not due, or behind another.

    May be repeated with the same claim when its answer was lost.
    """
    with db.connection() as connection:
        row = connection.execute(TAKE, {"id": letter_id, "claim": claim, "seconds": seconds}).fetchone()
    return None if row is None else Taken(*(*row, claim))


def earlier(db: Database, taken: Taken) -> list[Earlier]:
    """What went out in the same conversation, oldest first. It is the same at every attempt: the order is kept."""
    with db.connection() as connection:
        return [Earlier(**row) for row in rows(connection, EARLIER, {"id": taken.id})]


def payload(connection: Connection, tenant: str, key: str) -> dict[str, Any] | None:
    """What the letter with this key says; None when there is no such letter."""
    row = connection.execute("SELECT payload FROM outbox WHERE tenant = %s AND key = %s", (tenant, key)).fetchone()
    return None if row is None else row[0]


def settle(
    connection: Connection,
    taken: Taken,
    state: str,
    *,
    receipt: str | None = None,
    error: str | None = None,
    wait: float = 0,
) -> bool:
    """Say what became of a taken row; False when the claim is no longer ours. `wait`: seconds until the next try."""
    names = {"id": taken.id, "claim": taken.claim, "state": state, "receipt": receipt, "error": error, "wait": wait}
    return connection.execute(SETTLE, names).rowcount == 1
