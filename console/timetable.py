"""Schedules for command line and API: what a deploy declares, and what people are told of them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from workers import registry
from workers.intake import Intake
from workers.schedules import plan_of
from workers.settings import Settings
from workers.store.database import Database
from workers.store.schedules import Schedule
from workers.telemetry import logger
from workers.timetable import Timetable


def declare(settings: Settings) -> tuple[int, int]:
    """Bring the schedules of the settings' tenant in line with the agents: how many hold, and how many are gone."""
    url = settings.database_url.get_secret_value()
    with closing(Database(url, size=2, application="twelvefold-migrate")) as db:
        agents = registry.load(settings.agent_modules)
        return Timetable(Intake(db, agents, logger(process="migrate"))).declare(settings.tenant)


def shown(table: Timetable, schedule: Schedule) -> dict[str, Any]:
    """What people are told of a schedule: its times in words, and the next five with their offsets."""
    state = "disabled" if schedule.disabled_at else "paused" if schedule.paused_at else "fires"
    return {
        "name": schedule.full_name, "agent": schedule.agent, "state": state, "cron": schedule.cron, "tz": schedule.tz,
        "dst": schedule.dst, "means": plan_of(schedule).sentence, "overlap": schedule.overlap,
        "catch_up": schedule.catch_up, "window": schedule.window_s, "jitter": schedule.jitter_s,
        "declared": schedule.declared, "paused_at": schedule.paused_at, "paused_by": schedule.paused_by,
        "next_fire_at": schedule.next_fire_at if state == "fires" else None, "held_fire": schedule.held_fire,
        "next": [at.isoformat(timespec="minutes") for at in table.coming(schedule)],
    }  # fmt: skip
