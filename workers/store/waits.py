"""Outside events and the tasks that wait for them: whoever comes second finds the first, whichever it is.

A commit that opens a wait and an event with its key take the same advisory lock before any row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import NAMESPACE_OID, uuid5

from twelvefold.controls import Wait
from twelvefold.events import Decided
from twelvefold.record import Recorded
from twelvefold.state import State

from .claims import Claimed
from .database import Connection
from .inbox import Entry

ADOPT = """
WITH r AS (
    UPDATE arrivals SET state = 'accepted', reason = NULL, task_id = %(id)s
     WHERE id = (SELECT id FROM arrivals WHERE tenant = %(tenant)s AND wait_key = %(key)s AND state = 'unclaimed'
                  ORDER BY id LIMIT 1)
    RETURNING id)
UPDATE agent_tasks SET inbox_pending = inbox_pending + 1,
       status = CASE WHEN status = 'waiting' THEN 'ready' ELSE status END
  FROM r WHERE agent_tasks.id = %(id)s
"""


def opened_key(events: Sequence[Recorded], state: State) -> str | None:
    """The key of a wait that these events opened and that is still open."""
    opened = any(isinstance(r.event, Decided) and r.event.tool == Wait.__spec__.name for r in events)
    return state.wait_key if opened else None


def lock(connection: Connection, tenant: str, key: str) -> None:
    """Serialise with every event and every wait of this key; must come before any row is touched."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 12))", (f"{tenant}\x1f{key}",))


def adopt(connection: Connection, held: Claimed, key: str) -> bool:
    """Give the oldest unclaimed event of this key to the task; True when there was one."""
    return connection.execute(ADOPT, {"id": held.id, "tenant": held.tenant, "key": key}).rowcount == 1


def waiters(connection: Connection, tenant: str, key: str) -> list[str]:
    """The tasks whose wait for this key is open."""
    found = connection.execute(
        "SELECT id::text FROM agent_tasks WHERE tenant = %s AND wait_key = %s ORDER BY id", (tenant, key)
    )
    return [row[0] for row in found.fetchall()]


SHARE = """
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
VALUES (%(id)s, %(tenant)s, %(task)s::uuid, 0, 'task', %(task)s::text, %(key)s, 0, %(key)s, %(payload)s)
ON CONFLICT (tenant, key) DO NOTHING
"""


def share(connection: Connection, entry: Entry, task_id: str) -> None:
    """One outbox row for one of several waiters: no transaction writes two task rows."""
    key = f"event:{entry.source}:{entry.key}:{task_id}"
    payload = {"kind": "event", "wait_key": entry.wait_key, "data": entry.payload, "proof": entry.proof}
    names = {
        "id": uuid5(NAMESPACE_OID, f"{entry.tenant}:{key}"), "tenant": entry.tenant, "task": task_id, "key": key,
        "payload": json.dumps(payload),
    }  # fmt: skip
    connection.execute(SHARE, names)
