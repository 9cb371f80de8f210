"""The receipts of a task: what each question to a model showed of its events."""

from __future__ import annotations

from typing import Any

from .database import Database

ASKED = """
SELECT seq, at, data->>'model' AS model, data->'receipt' AS receipt, coalesce((data->>'broke')::bool, false) AS broke
  FROM agent_events
 WHERE task_id = %(id)s AND type = 'ModelAsked' AND data->>'receipt' IS NOT NULL
"""
ONE = ASKED + " AND seq <= %(seq)s ORDER BY seq DESC LIMIT 1"
SINCE = ASKED + " AND seq > %(seq)s ORDER BY seq"


def receipt(db: Database, task_id: str, seq: int) -> dict[str, Any] | None:
    """The receipt of the question at a seq, or of the last one before it; None where there is none."""
    found = db.rows(ONE, {"id": task_id, "seq": seq})
    return found[0] if found else None


def since(db: Database, task_id: str, seq: int) -> list[dict[str, Any]]:
    """The receipts of the questions after a seq, in order."""
    return db.rows(SINCE, {"id": task_id, "seq": seq})
