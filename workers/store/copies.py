"""What every copy of a question is told when it is over: one letter into each conversation that it was sent to.

Written by whoever moves the row, in the same transaction, so that no copy stays open where the row does not.
"""

from __future__ import annotations

import json

from .database import Connection

TELL = """
WITH told AS (
    SELECT DISTINCT o.channel, o.recipient, o.conversation FROM outbox o
     WHERE o.tenant = %(tenant)s AND o.task_id = %(task)s AND o.channel <> 'log'
       AND lower(coalesce(nullif(o.payload ->> 'for', ''), o.recipient)) <> %(but)s
       AND (coalesce(o.payload -> 'card', o.payload -> 'question') ->> 'asked')::int = %(asked)s),
t AS (UPDATE agent_tasks SET outbox_n = outbox_n + (SELECT count(*) FROM told)
       WHERE tenant = %(tenant)s AND id = %(task)s RETURNING outbox_n)
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
SELECT gen_random_uuid(), %(tenant)s, %(task)s, %(asked)s, told.channel, told.recipient, told.conversation,
       t.outbox_n + 1 - row_number() OVER (ORDER BY told.conversation DESC),
       %(task)s::text || ':' || %(asked)s::text || ':over:' || told.channel || ':' || told.recipient, %(payload)s
  FROM told, t
    ON CONFLICT (tenant, key) DO NOTHING
"""


def tell(connection: Connection, tenant: str, task: str, asked: int, text: str, *, but: str = "") -> None:
    """Tell everybody who was asked, except `but`, how the question ended; once. The task's row is locked already."""
    payload = json.dumps({"subject": "Over", "text": f"{text}\n", "over": asked})
    names = {"tenant": tenant, "task": task, "asked": asked, "but": but.lower(), "payload": payload}
    connection.execute(TELL, names)
