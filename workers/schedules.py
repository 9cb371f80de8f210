"""Schedules fire: each time that has come becomes one arrival, which opens a task or says why it does not.

Any number of processes may do this. Whoever holds the row of a schedule fires it, and the arrival's key names schedule
and time, so that a time has one arrival however often it is fired: interrupted anywhere, it is simply done again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from triggers.cron import MOST_AT_ONCE, ON_TIME, Cron, Turn, cron, due, next_due, turns
from triggers.envelope import Verdict
from twelvefold.agent import Tick

from .intake import Intake
from .store import schedules
from .store.inbox import Entry
from .store.schedules import Schedule
from .telemetry import Log, kind_of

SOURCE = "schedule"
MOST_OPENED = 10
"""So many tasks a schedule opens before its row is written: who is interrupted has that much to do again, no more."""


def fire(intake: Intake, log: Log, now: datetime | None = None) -> int:
    """Fire what is due, by the database's clock unless told the time: how many tasks were opened
    or found to be open."""
    count = 0
    for place in schedules.due(intake.db, intake.registry.loaded, now):
        try:
            count += _fire(intake, place, now)
        except Exception as error:  # one that is broken must not keep the others from firing
            log.error("schedule_broke", tenant=place[0], schedule=f"{place[1]}.{place[2]}", error=kind_of(error))
    return count


def plan_of(schedule: Schedule) -> Cron:
    """Its times."""
    return cron(schedule.cron, schedule.tz, schedule.dst)


def planned(schedule: Schedule) -> Schedule:
    """The schedule with the time at which the next one is due."""
    found = next_due(plan_of(schedule), schedule.since, schedule.jitter, schedule.full_name)
    return replace(schedule, next_fire_at=found)


def _fire(intake: Intake, place: tuple[str, str, str], now: datetime | None) -> int:
    with intake.db.transaction() as connection:
        schedule = schedules.hold(connection, place, now, wait=False)
        if schedule is None or schedule.disabled_at is not None:
            return 0
        before = schedule
        schedule, running = schedules.under_way(connection, schedule)
        firing = Firing(intake, schedule, running)
        firing.release()
        times = due(plan_of(schedule), schedule.since, schedule.now, schedule.jitter, schedule.full_name, MOST_AT_ONCE)
        for turn in turns(times, schedule.now, schedule.catch_up, schedule.window, schedule.jitter):
            firing.take(turn)
            if firing.count >= MOST_OPENED:
                break
        if firing.schedule != before:
            schedules.store(connection, planned(firing.schedule))
    return firing.count


class Firing:
    """One held schedule while it fires: what becomes of each of its times, in order."""

    def __init__(self, intake: Intake, schedule: Schedule, running: bool) -> None:
        self.intake, self.schedule, self.running = intake, schedule, running
        self.count = 0

    def release(self) -> None:
        """Fire the time that waits, when nothing runs any more."""
        held = self.schedule.held_fire
        if held is not None and not self.running and self.schedule.paused_at is None:
            self.schedule = replace(self.schedule, held_fire=None)
            self._open(held, late=self.schedule.now - held - self.schedule.jitter > ON_TIME)

    def take(self, turn: Turn) -> None:
        """Fire one time, keep it until nothing runs, or store why it is passed over."""
        at, overlap = self.schedule, self.schedule.overlap
        if at.paused_at is not None or turn.passed:
            self._pass_over(turn.fire, "paused" if at.paused_at is not None else turn.passed)
        elif not self.running or overlap == "allow":
            self._open(turn.fire, turn.late)
        elif overlap == "buffer_one" and at.held_fire is None:
            self.schedule = replace(at, held_fire=turn.fire)
        else:
            self._pass_over(turn.fire, "overlap")
        self.schedule = replace(self.schedule, since=turn.fire)

    def _open(self, fire: datetime, late: bool) -> None:
        verdict = open_at(self.intake, self.schedule, fire, late=late)
        if verdict.task_id is not None:
            self.running = True
            self.count += 1
            if self.schedule.overlap != "allow" and verdict.task_id not in self.schedule.opened:
                self.schedule = replace(self.schedule, opened=[*self.schedule.opened, verdict.task_id])

    def _pass_over(self, fire: datetime, reason: str) -> None:
        self.intake.ignore(entry_of(self.schedule, fire), reason)


def open_at(intake: Intake, schedule: Schedule, fire: datetime, *, late: bool, again: bool = False) -> Verdict:
    """Open the task of one time, whatever its policies say; `again`: in the place of one that was passed over."""
    loaded = intake.registry[schedule.agent]
    binding = intake.registry.schedules.get((schedule.agent, schedule.name))
    tick = Tick(name=schedule.name, at=fire, late=late)
    read = binding.read if binding is not None and schedule.event is None else None
    reader = None if read is None else lambda payload: read(Tick.model_validate(payload))
    payload = tick.model_dump(mode="json") if schedule.event is None else schedule.event
    return intake.read(entry_of(schedule, fire, again=again), loaded, reader, payload)


def entry_of(schedule: Schedule, fire: datetime, *, again: bool = False) -> Entry:
    """The arrival of one time, by the key that makes it one."""
    key = f"{schedule.full_name} {fire.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
    return Entry(
        tenant=schedule.tenant, source=SOURCE, key=f"{key} backfill" if again else key, kind="message",
        type=schedule.full_name, proof=SOURCE,
    )  # fmt: skip
