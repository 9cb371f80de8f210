"""The rows of `facts`: which ids, numbers and links a task has seen, written with each commit, read by index.

A plain word is no token, and of a very large event not every token is kept; so what the index does not hold is looked
for as it is written, in a bounded number of events.
"""

from __future__ import annotations

from collections.abc import Collection

from twelvefold.facts import MORE

from .database import Database

HELD = """
SELECT token FROM facts
 WHERE task_id = %(id)s AND token = ANY(%(tokens)s) AND CASE WHEN %(told)s THEN told ELSE known END
"""
WRITTEN = rf"""
WITH looked AS MATERIALIZED (
    SELECT e.data::text AS data FROM agent_events e
     WHERE e.task_id = %(id)s AND e.type = ANY(%(types)s) AND e.data ->> 'check' IS NULL
       AND (e.type <> 'Returned' OR EXISTS (
            SELECT FROM agent_events d
             WHERE d.task_id = %(id)s AND d.seq = (e.data ->> 'call')::int AND d.data ->> 'kind' <> 'control'
               AND (d.data ->> 'tool' <> 'recall' OR NOT %(told)s)))
       AND (e.seq > (SELECT max(x.seq) FROM agent_events x WHERE x.task_id = %(id)s) - %(recent)s
            OR e.seq = (SELECT min(x.seq) FROM agent_events x WHERE x.task_id = %(id)s)
            OR e.seq IN (SELECT f.seq FROM facts f WHERE f.task_id = %(id)s AND f.token LIKE '{MORE}%%'
                          ORDER BY f.seq DESC LIMIT %(recent)s)))
SELECT w.token FROM unnest(%(tokens)s::text[]) AS w (token)
 WHERE EXISTS (SELECT FROM looked
                WHERE position(w.token IN data) > 0
                  AND data ~ ('(^|[^[:alnum:]_])' || regexp_replace(w.token, '([^[:alnum:][:space:]])', '\\\1', 'g')
                              || '($|[^[:alnum:]_])'))
"""
NEAR = """
SELECT token FROM (
    (SELECT token FROM facts WHERE task_id = %(id)s AND known AND starts_with(token, %(start)s) LIMIT 50)
    UNION
    (SELECT token FROM facts WHERE task_id = %(id)s AND known AND seq > (
            SELECT max(x.seq) FROM agent_events x WHERE x.task_id = %(id)s) - %(recent)s LIMIT 200)) AS found
"""
"""What a control gives back, as a page does, was in other events before, and what is recalled is no result."""
RECENT = 200
"""So many of the newest events are looked into for what the index does not hold, and the opening one."""
SHORTEST = 3
"""A shorter text stands in too many others to prove anything."""
KNOWN_IN = ["Arrived", "Prefetched", "Returned", "ApprovalMoved", "ChildReturned"]
TOLD_IN = ["Prefetched", "Returned", "ChildReturned"]


class Stored:
    """The stored facts of one task."""

    def __init__(self, db: Database, task_id: str) -> None:
        self._db, self._id = db, task_id

    def held(self, tokens: Collection[str], *, told: bool) -> set[str]:
        """Those of the tokens that may be used, or reported."""
        names = {"id": self._id, "told": told, "tokens": list(tokens)}
        with self._db.looking() as connection:
            found = {row[0] for row in connection.execute(HELD, names)}
            names |= {
                "tokens": [token for token in tokens if token not in found and len(token) >= SHORTEST],
                "types": TOLD_IN if told else KNOWN_IN, "recent": RECENT,
            }  # fmt: skip
            if names["tokens"]:
                found |= {row[0] for row in connection.execute(WRITTEN, names)}
        return found

    def near(self, token: str) -> list[str]:
        """Ids that begin alike, and those of the newest events."""
        names = {"id": self._id, "start": token[:2], "recent": RECENT}
        with self._db.looking() as connection:
            return [row[0] for row in connection.execute(NEAR, names) if not row[0].startswith(MORE)]
