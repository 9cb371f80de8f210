"""What an operator's check asks the database: which schema it has, what our role may do, and who works on it."""

from __future__ import annotations

from dataclasses import dataclass

from .database import Database

SCHEMA = """
SELECT to_regclass('alembic_version') IS NOT NULL AND has_table_privilege('alembic_version', 'SELECT') AS readable
"""
VERSION = "SELECT version_num AS version FROM alembic_version"
RIGHTS = """
SELECT current_user::text AS role,
       has_table_privilege('agent_events', 'INSERT') AND has_table_privilege('agent_tasks', 'UPDATE') AS enough,
       has_table_privilege('agent_events', 'UPDATE, DELETE') AS rewrites
"""
WORKERS = """
SELECT lane, count(*)::int AS processes FROM workers_alive, jsonb_each_text(slots) AS s (lane, n)
 WHERE heartbeat > clock_timestamp() - make_interval(secs => %(dead_after)s) GROUP BY lane ORDER BY lane
"""


@dataclass(frozen=True, slots=True)
class Rights:
    """The role we connect as: whether it may do what a worker needs, and whether it could rewrite the log."""

    role: str
    enough: bool
    rewrites: bool


def version(db: Database) -> str | None:
    """The revision of the schema; None for a database that was never migrated."""
    if not db.rows(SCHEMA)[0]["readable"]:
        return None
    found = db.rows(VERSION)
    return str(found[0]["version"]) if found else None


def rights(db: Database) -> Rights:
    """What our role may do; the tables must be there."""
    return Rights(**db.rows(RIGHTS)[0])


def workers(db: Database, dead_after: float) -> dict[str, int]:
    """The living processes of each lane that has one."""
    return {row["lane"]: row["processes"] for row in db.rows(WORKERS, {"dead_after": dead_after})}
