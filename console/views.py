"""What the command line shows of the database: tasks and logs as rows, long data shortened."""

from __future__ import annotations

import json
from typing import Any

from workers.store.database import Database

NOISE = ("digest", "receipt", "raw", "request")


def tasks(db: Database, status: str | None = None, most: int = 50) -> list[dict[str, Any]]:
    """The newest tasks."""
    return db.rows(
        "SELECT id::text, tenant, agent, status, waiting_for, current_step, business_entity_id, reason, created_at"
        " FROM agent_tasks WHERE %(status)s::text IS NULL OR status = %(status)s ORDER BY id DESC LIMIT %(most)s",
        {"status": status, "most": most},
    )


def events(db: Database, task_id: str) -> list[dict[str, Any]]:
    """The log of one task, in order; empty for what is no task id."""
    return db.rows(
        "SELECT e.seq, e.at, e.type, e.version, e.data FROM agent_events e WHERE e.task_id = %(id)s ORDER BY seq",
        {"id": task_id},
    )


def short(data: dict[str, Any], most: int = 110) -> str:
    """The data of an event on one line."""
    text = json.dumps({key: value for key, value in data.items() if key not in NOISE}, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."
