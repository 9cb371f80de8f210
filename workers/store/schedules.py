"""The rows of `schedules`: when each fires next and what it has opened. Whoever fires one holds its row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from twelvefold.bindings import CatchUp, CronBinding, Dst, Overlap

from .database import Connection, Database, rows

PERSONS = ("approval", "answer", "operator", "settle", "budget")
"""Who waits for one of these waits for a person, and does not count as running."""

COLUMNS = """s.tenant, s.agent, s.name, s.cron, s.tz, s.dst, s.overlap, s.catch_up, s.window_s, s.jitter_s, s.event,
       s.declared, s.since, s.next_fire_at, s.held_fire, s.opened::text[] AS opened, s.paused_at, s.paused_by,
       s.disabled_at"""

DUE = """
SELECT s.tenant, s.agent, s.name FROM schedules s
 WHERE s.disabled_at IS NULL AND s.agent = ANY(%(agents)s)
   AND (s.next_fire_at <= coalesce(%(now)s, statement_timestamp()) OR s.held_fire IS NOT NULL)
 ORDER BY s.next_fire_at LIMIT 100
"""

HELD = f"""
SELECT {COLUMNS}, coalesce(%(now)s, clock_timestamp()) AS now FROM schedules s
 WHERE s.tenant = %(tenant)s AND s.agent = %(agent)s AND s.name = %(name)s
   FOR UPDATE
"""

MOVE = """
UPDATE schedules s SET since = %(since)s, next_fire_at = %(next_fire_at)s, held_fire = %(held_fire)s,
       opened = %(opened)s::uuid[], paused_at = %(paused_at)s, paused_by = %(paused_by)s,
       disabled_at = %(disabled_at)s, cron = %(cron)s, tz = %(tz)s, dst = %(dst)s, overlap = %(overlap)s,
       catch_up = %(catch_up)s, window_s = %(window_s)s, jitter_s = %(jitter_s)s, event = %(event)s,
       declared = %(declared)s
 WHERE s.tenant = %(tenant)s AND s.agent = %(agent)s AND s.name = %(name)s
"""

NEW = """
INSERT INTO schedules (tenant, agent, name, cron, tz, dst, overlap, catch_up, window_s, jitter_s, event, declared,
                       since, next_fire_at)
VALUES (%(tenant)s, %(agent)s, %(name)s, %(cron)s, %(tz)s, %(dst)s, %(overlap)s, %(catch_up)s, %(window_s)s,
        %(jitter_s)s, %(event)s, %(declared)s, %(since)s, %(next_fire_at)s)
ON CONFLICT (tenant, agent, name) DO NOTHING RETURNING name
"""

LISTED = f"""
SELECT {COLUMNS}, clock_timestamp() AS now FROM schedules s
 WHERE s.tenant = coalesce(%(tenant)s, s.tenant) AND (%(agents)s::text[] IS NULL OR s.agent = ANY(%(agents)s))
 ORDER BY s.tenant, s.agent, s.name
"""

UNDER_WAY = """
SELECT t.id::text, t.status NOT IN ('done', 'failed', 'cancelled') AS open,
       t.status = 'ready' OR (t.status = 'waiting' AND t.waiting_for <> ALL(%(persons)s)) AS runs
  FROM agent_tasks t WHERE t.id = ANY(%(ids)s::uuid[])
"""

OVERDUE = """
SELECT s.tenant, s.agent, s.name FROM schedules s
 WHERE s.tenant = coalesce(%(tenant)s, s.tenant) AND s.disabled_at IS NULL
   AND s.next_fire_at < statement_timestamp() - make_interval(secs => %(seconds)s) ORDER BY s.next_fire_at
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule. Everything up to `since` is accounted for; `next_fire_at` is when the next one is due, its jitter
    counted in; `held_fire` waits for what runs; `opened` are its tasks that have not ended, where that matters; `event`
    takes the place of a Tick; `now` is the clock when it was read.
    """

    tenant: str
    agent: str
    name: str
    cron: str
    tz: str = "UTC"
    dst: Dst = "vixie"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    window_s: int = 3600
    jitter_s: int = 0
    event: Any = None
    declared: bool = False
    since: datetime
    next_fire_at: datetime
    held_fire: datetime | None = None
    opened: list[str]
    paused_at: datetime | None = None
    paused_by: str | None = None
    disabled_at: datetime | None = None
    now: datetime

    @property
    def full_name(self) -> str:
        """Agent and name, as people write it."""
        return f"{self.agent}.{self.name}"

    @property
    def window(self) -> timedelta:
        """How old what was missed may be to be made up for."""
        return timedelta(seconds=self.window_s)

    @property
    def jitter(self) -> timedelta:
        """How much is added at most."""
        return timedelta(seconds=self.jitter_s)

    @property
    def binding(self) -> CronBinding:
        """What it is, as one would declare it. Raises DeclarationError where it cannot be."""
        return CronBinding(
            self.name, self.cron, self.tz, self.dst, self.overlap, self.catch_up, self.window, self.jitter
        )


def due(db: Database, agents: Collection[str], now: datetime | None = None) -> list[tuple[str, str, str]]:
    """The schedules of these agents with something to do: (tenant, agent, name)."""
    with db.connection() as connection:
        return [(a, b, c) for a, b, c in connection.execute(DUE, {"agents": list(agents), "now": now}).fetchall()]


def hold(
    connection: Connection, place: tuple[str, str, str], now: datetime | None = None, *, wait: bool = True
) -> Schedule | None:
    """Lock a schedule and read it; None when there is none, or when `wait` is false and another holds it."""
    names = dict(zip(("tenant", "agent", "name"), place, strict=True)) | {"now": now}
    found = rows(connection, HELD if wait else HELD + " SKIP LOCKED", names)
    return Schedule(**found[0]) if found else None


def store(connection: Connection, schedule: Schedule) -> None:
    """Write all of a schedule that is held."""
    connection.execute(MOVE, _names(schedule))


def add(connection: Connection, schedule: Schedule) -> bool:
    """A new schedule; False when there is one of this name."""
    return connection.execute(NEW, _names(schedule)).rowcount == 1


def listed(db: Database, tenant: str | None = None, agents: Collection[str] | None = None) -> list[Schedule]:
    """Every schedule of a tenant, or, for the command line alone, of all; those of some agents only, if named."""
    names = {"tenant": tenant, "agents": None if agents is None else list(agents)}
    return [Schedule(**row) for row in db.rows(LISTED, names)]


def under_way(connection: Connection, schedule: Schedule) -> tuple[Schedule, bool]:
    """The schedule without the tasks that have ended, and whether one of the others runs."""
    if not schedule.opened:
        return schedule, False
    found = rows(connection, UNDER_WAY, {"ids": schedule.opened, "persons": list(PERSONS)})
    open_ = [row["id"] for row in found if row["open"]]
    return replace(schedule, opened=open_), any(row["runs"] for row in found)


def overdue(db: Database, tenant: str | None, seconds: float) -> list[str]:
    """The names of what should have fired so many seconds ago, and did not."""
    found = db.rows(OVERDUE, {"tenant": tenant, "seconds": seconds})
    return [f"{row['agent']}.{row['name']}" for row in found]


def _names(schedule: Schedule) -> dict[str, Any]:
    names: Iterable[str] = Schedule.__slots__
    found = {name: getattr(schedule, name) for name in names}
    return found | {"event": None if schedule.event is None else json.dumps(schedule.event)}
