"""What is kept of the arrival that a run began with."""

from __future__ import annotations

from typing import Any

from .database import Database

OPENED = """
SELECT sender, conversation, proof, headers FROM arrivals
 WHERE tenant = %(tenant)s AND source = %(source)s AND key = %(key)s
"""


def opened(db: Database, tenant: str, source: str, key: str) -> dict[str, Any] | None:
    """Sender, conversation, proof and headers of an arrival; None when it is not there any more."""
    rows = db.rows(OPENED, {"tenant": tenant, "source": source, "key": key})
    return rows[0] if rows else None
