"""Which task a thread outside belongs to: by what opened it, or by a letter of ours that the thread hangs on."""

from __future__ import annotations

from typing import Any

from .database import Database

TASK_OF = """
(SELECT r.task_id::text AS task, r.key, t.agent
  FROM arrivals r JOIN agent_tasks t ON t.id = r.task_id AND t.tenant = r.tenant
 WHERE r.tenant = %(tenant)s AND r.conversation = %(conversation)s AND r.task_id IS NOT NULL ORDER BY r.id LIMIT 1)
UNION ALL
(SELECT o.task_id::text, '', t.agent
  FROM outbox o JOIN agent_tasks t ON t.id = o.task_id AND t.tenant = o.tenant
 WHERE o.tenant = %(tenant)s AND o.channel = %(channel)s AND o.receipt = %(receipt)s
 ORDER BY o.created_at LIMIT 1) LIMIT 1
"""
LETTER = """
SELECT task_id::text AS task, seq, payload -> 'card' AS card FROM outbox WHERE tenant = %(tenant)s AND id = %(id)s
"""


def task_of(db: Database, tenant: str, conversation: str, receipt: str, channel: str) -> dict[str, Any] | None:
    """The task that this conversation is about, the key of what opened it, and its agent; None for a strange one.

    `receipt` is what the `channel` calls the letter that the conversation hangs on, if it is one of ours.
    """
    names = {"tenant": tenant, "conversation": conversation, "receipt": receipt, "channel": channel}
    found = db.rows(TASK_OF, names)
    return found[0] if found else None


def letter(db: Database, tenant: str, id: str) -> dict[str, Any] | None:
    """The task of a letter, the seq of the event that it tells, and the card that it shows, if it asks."""
    found = db.rows(LETTER, {"tenant": tenant, "id": id})
    return found[0] if found else None
