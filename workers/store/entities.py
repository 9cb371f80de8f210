"""One open task for each business entity: whoever might open a second one waits here for the first, then finds it.

The advisory lock comes before any row, as intake takes it; a task that has ended is no obstacle.
"""

from __future__ import annotations

from dataclasses import dataclass

from .database import Connection

OPEN = """
SELECT id::text FROM agent_tasks
 WHERE tenant = %s AND agent = %s AND business_entity_id = %s AND status NOT IN ('done', 'failed', 'cancelled')
 ORDER BY id LIMIT 1 FOR UPDATE
"""

ENDED = """
SELECT id::text, tenant, agent, business_entity_id FROM agent_tasks
 WHERE id = %s AND status = 'done' AND business_entity_id IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Open:
    """A task, whose it is and what it is about."""

    id: str
    tenant: str
    agent: str
    about: str


def only_one(connection: Connection, tenant: str, agent: str, about: str) -> str | None:
    """Keep others from opening a task about this entity until the transaction ends. The open one, locked, or None."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 13))", (f"{tenant}\x1f{agent}\x1f{about}",))
    row = connection.execute(OPEN, (tenant, agent, about)).fetchone()
    return None if row is None else str(row[0])


def ended(connection: Connection, task_id: str) -> Open | None:
    """The task, when it is done and is about something; not locked."""
    row = connection.execute(ENDED, (task_id,)).fetchone()
    return None if row is None else Open(*row)
