"""Reading the log: the window of a model call, one event's data, the whole of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twelvefold.record import Recorded, revive
from twelvefold.shape import Row
from twelvefold.window import UNSEEN_TYPES

from .database import Database
from .quick import quick

UNSEEN = "ARRAY[" + ", ".join(f"'{name}'" for name in UNSEEN_TYPES) + "]"
WINDOW = f"""
SELECT seq, type, version, data::text FROM agent_events
 WHERE task_id = %(id)s AND (seq >= %(boundary)s OR seq IN (%(opened)s, %(folded)s)) AND type <> ALL({UNSEEN})
 ORDER BY seq
"""
SEEN = f"""
SELECT seq, type, version, data::text FROM agent_events
 WHERE task_id = %(id)s AND seq BETWEEN %(first)s AND %(last)s AND type <> ALL({UNSEEN}) ORDER BY seq
"""


def window(db: Database, task_id: str, boundary: int, opened: int, folded: int = 0) -> list[Row]:
    """What a model may see: the opening event, the last summary and everything from the boundary on."""
    names = {"id": task_id, "boundary": boundary, "opened": opened, "folded": folded}
    with db.looking() as connection:
        found = quick(connection, WINDOW, names)
    return [Row(int(seq), kind, int(version), data) for seq, kind, version, data in found]


def seen(db: Database, task_id: str, first: int, last: int) -> list[Row]:
    """What a model may see of the events from first to last."""
    with db.looking() as connection:
        found = connection.execute(SEEN, {"id": task_id, "first": first, "last": last}).fetchall()
    return [Row(int(seq), kind, int(version), data) for seq, kind, version, data in found]


def data_of(db: Database, task_id: str, seq: int) -> Mapping[str, Any]:
    """The data of one event; LookupError when there is none."""
    with db.looking() as connection:
        row = connection.execute(
            "SELECT data::text FROM agent_events WHERE task_id = %s AND seq = %s", (task_id, seq)
        ).fetchone()
    if row is None:
        raise LookupError(f"Task {task_id} has no event {seq}.")
    found: Mapping[str, Any] = json.loads(row[0])
    return found


def events(db: Database, task_id: str, after: int = 0) -> list[Recorded]:
    """The task's events after a seq, in order."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT seq, at, type, version, data::text FROM agent_events WHERE task_id = %s AND seq > %s ORDER BY seq",
            (task_id, after),
        ).fetchall()
    return [Recorded(seq, at, revive(kind, version, json.loads(data))) for seq, at, kind, version, data in found]


def latest(
    db: Database, task_id: str, names: Sequence[str], *, opened: int, until: int, most: int = 400
) -> list[Recorded]:
    """The last events of these types from the seq `opened` to `until`, in order."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT seq, at, type, version, data::text FROM agent_events"
            " WHERE task_id = %s AND seq BETWEEN %s AND %s AND type = ANY(%s) ORDER BY seq DESC LIMIT %s",
            (task_id, opened, until, list(names), most),
        ).fetchall()
    return [Recorded(seq, at, revive(kind, version, json.loads(data))) for seq, at, kind, version, data in found][::-1]
