"""The pace of each destination, shared by every worker: one row says when the next letter may go, by the database's
clock. The destination `*` stands for all of a channel.
"""

from __future__ import annotations

from .database import Connection, Database

SLOT = """
INSERT INTO paces AS p (channel, destination, free_at)
SELECT %(channel)s, %(destination)s, clock_timestamp() + make_interval(secs => %(gap)s)
 WHERE NOT EXISTS (SELECT FROM paces a WHERE a.channel = %(channel)s AND a.destination = '*'
                      AND a.free_at > clock_timestamp())
ON CONFLICT (channel, destination)
   DO UPDATE SET free_at = greatest(p.free_at, excluded.free_at)
    WHERE p.free_at <= clock_timestamp() AND p.closed_at IS NULL
"""

WAIT = """
SELECT CASE WHEN bool_or(closed_at IS NOT NULL) THEN 'infinity'::float8
            ELSE greatest(0, extract(epoch FROM max(free_at) - clock_timestamp())) END FROM paces
 WHERE channel = %(channel)s AND destination IN ('*', %(destination)s)
"""

HOLD = """
INSERT INTO paces AS p (channel, destination, free_at)
VALUES (%(channel)s, %(destination)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (channel, destination) DO UPDATE SET free_at = greatest(p.free_at, excluded.free_at)
"""

CLOSE = """
INSERT INTO paces (channel, destination, free_at, closed_at)
VALUES (%(channel)s, %(destination)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (channel, destination) DO UPDATE SET closed_at = clock_timestamp()
"""


def slot(db: Database, channel: str, destination: str, gap: float) -> float | None:
    """Take the next place: None when it is ours and the next one comes `gap` seconds later, else seconds to wait;
    infinity where the destination is closed.
    """
    names = {"channel": channel, "destination": destination, "gap": gap}
    with db.connection() as connection:
        if connection.execute(SLOT, names).rowcount == 1:
            return None
        row = connection.execute(WAIT, names).fetchone()
    return 0.0 if row is None or row[0] is None else float(row[0])


def hold(connection: Connection, channel: str, destination: str, seconds: float) -> None:
    """Let nothing go there for so long; `*` is all of the channel."""
    connection.execute(HOLD, {"channel": channel, "destination": destination, "seconds": seconds})


def close(connection: Connection, channel: str, destination: str) -> None:
    """Let nothing go there until it is opened."""
    connection.execute(CLOSE, {"channel": channel, "destination": destination})


def reopen(db: Database, channel: str, destination: str) -> bool:
    """Let letters go there again; False when it is not closed."""
    with db.connection() as connection:
        found = connection.execute(
            "UPDATE paces SET closed_at = NULL WHERE channel = %s AND destination = %s AND closed_at IS NOT NULL",
            (channel, destination),
        )
        return found.rowcount == 1
