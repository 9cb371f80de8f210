"""What people and deploys do with schedules: declare, make, edit, pause, resume and backfill them, and see what comes.

Each takes effect with its commit. A schedule that was paused or changed begins anew at that moment: nothing that lies
before it fires afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from triggers.cron import MOST_LATE
from twelvefold.agent import Tick
from twelvefold.bindings import CronBinding

from .decisions import Refused
from .intake import Intake
from .schedules import SOURCE, entry_of, open_at, plan_of, planned
from .store import schedules, threads
from .store.schedules import Schedule

SHOWN = 5


class Timetable:
    """The schedules of a tenant, for people."""

    def __init__(self, intake: Intake) -> None:
        self.intake, self.db, self.registry = intake, intake.db, intake.registry

    def declare(self, tenant: str) -> tuple[int, int]:
        """Bring the tenant's schedules in line with the agents' code: how many hold, and how many were disabled, as
        their declaration is gone. A pause stays. What returns, or changed its times, begins anew now.
        """
        holds = self.registry.schedules
        gone = 0
        for (agent, _), binding in holds.items():
            self._put(tenant, agent, binding)
        for at in schedules.listed(self.db, tenant):
            if at.declared and at.disabled_at is None and (at.agent, at.name) not in holds:
                self._change(tenant, at.full_name, lambda held: replace(held, disabled_at=held.now))
                gone += 1
        return len(holds), gone

    def recompute(self) -> int:
        """Look at every schedule with the time zones of this process: how many fire next at another time than stored.
        What has fired, or was passed over, stays.
        """
        moved = 0
        for at in schedules.listed(self.db, None, list(self.registry.loaded)):
            if at.disabled_at is None and planned(at).next_fire_at != at.next_fire_at:
                self._change(at.tenant, at.full_name, lambda held: held)
                moved += 1
        return moved

    def new(self, tenant: str, agent: str, binding: CronBinding, event: Any = None) -> Schedule:
        """Make a schedule; `event` opens each task in the place of a Tick. Raises Refused 404 for an unknown agent, 409
        for a name that is taken and for an event that the agent does not accept, DeclarationError for wrong times.
        """
        made = self.preview(tenant, agent, binding, event)
        with self.db.transaction() as connection:
            if not schedules.add(connection, made):
                raise Refused(409, f"There is a schedule {made.full_name} already. Edit it, or choose another name.")
        return made

    def preview(self, tenant: str, agent: str, binding: CronBinding, event: Any = None) -> Schedule:
        """What `new` would make. Raises as it does, but for a name that is taken."""
        loaded = self.registry.loaded.get(agent)
        if loaded is None:
            raise Refused(404, f"There is no agent {agent!r}. See them: twelvefold doctor")
        with self.db.connection() as connection:
            made = planned(_scheduled(tenant, agent, binding, _clock(connection)))
        _must_accept(loaded.agent, made, event)
        return replace(made, event=event)

    def edit(self, tenant: str, name: str, **changes: Any) -> Schedule:
        """Change some of cron, tz, dst, overlap, catch_up, window, jitter and event. Raises as `new` does."""

        def edited(at: Schedule) -> Schedule:
            if at.declared:
                raise Refused(409, f"{name} is declared in code: change its on.cron(...), then run: twelvefold migrate")
            event = changes.pop("event", at.event)
            binding = replace(at.binding, **changes)
            found = _scheduled(tenant, at.agent, binding, at.now)
            same = (found.cron, found.tz, found.dst) == (at.cron, at.tz, at.dst)
            _must_accept(self.registry[at.agent].agent, found, event)
            return replace(_kept(found, at, same), event=event)

        return self._change(tenant, name, edited)

    def pause(self, tenant: str, name: str, by: str) -> Schedule:
        """Fire nothing until it is resumed; each time is stored as passed over."""
        return self._change(
            tenant, name, lambda at: replace(at, paused_at=at.paused_at or at.now, paused_by=at.paused_by or by)
        )

    def resume(self, tenant: str, name: str) -> Schedule:
        """Fire again, from the next time on."""

        def resumed(at: Schedule) -> Schedule:
            return at if at.paused_at is None else replace(at, paused_at=None, paused_by=None, since=at.now)

        return self._change(tenant, name, resumed)

    def backfill(self, tenant: str, name: str, begin: datetime, end: datetime) -> list[tuple[datetime, str]]:
        """Open the tasks of times from `begin` to `end`, both counted, that have passed and have opened none: each time
        with what became of it, oldest first. Overlap does not matter. Raises Refused 409 for more than 100 times.
        """
        at = self.find(tenant, name)
        times = list(islice(plan_of(at).fires(begin - timedelta(microseconds=1)), MOST_LATE + 1))
        times = [fire for fire in times if fire <= min(end, at.now)]
        if len(times) > MOST_LATE:
            raise Refused(409, f"That is more than {MOST_LATE} times. Choose a shorter stretch, and then the next one.")
        return [(fire, self._backfill(at, fire)) for fire in times]

    def find(self, tenant: str, name: str) -> Schedule:
        """The schedule of this full name. Raises Refused 404."""
        for at in schedules.listed(self.db, tenant):
            if at.full_name == name and at.agent in self.registry.loaded:
                return at
        raise Refused(404, f"There is no schedule {name!r}. See them: twelvefold schedules list")

    def coming(self, schedule: Schedule) -> list[datetime]:
        """The next five times as the clocks of its zone show them, without jitter."""
        plan = plan_of(schedule)
        return [plan.local(fire) for fire in islice(plan.fires(max(schedule.since, schedule.now)), SHOWN)]

    def _backfill(self, at: Schedule, fire: datetime) -> str:
        entry = entry_of(at, fire)
        known = threads.arrival(self.db, at.tenant, SOURCE, entry.key)
        if known is not None and known["state"] == "accepted":
            return "fired before"
        verdict = open_at(self.intake, at, fire, late=True, again=True)
        return "backfilled before" if verdict.outcome == "duplicate" else verdict.reason or verdict.outcome

    def _put(self, tenant: str, agent: str, binding: CronBinding) -> None:
        with self.db.transaction() as connection:
            now = _clock(connection)
            wanted = replace(_scheduled(tenant, agent, binding, now), declared=True)
            if schedules.add(connection, planned(wanted)):
                return
            at = schedules.hold(connection, (tenant, agent, binding.name))
            assert at is not None
            same = (at.cron, at.tz, at.dst) == (wanted.cron, wanted.tz, wanted.dst) and at.disabled_at is None
            schedules.store(connection, planned(_kept(wanted, at, same)))

    def _change(self, tenant: str, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        agent, _, own = name.rpartition(".")
        with self.db.transaction() as connection:
            at = schedules.hold(connection, (tenant, agent, own))
            if at is None:
                raise Refused(404, f"There is no schedule {name!r}. See them: twelvefold schedules list")
            changed = planned(change(at))
            schedules.store(connection, changed)
        return changed


def _clock(connection: Any) -> datetime:
    now: datetime = connection.execute("SELECT clock_timestamp()").fetchone()[0]
    return now


def _scheduled(tenant: str, agent: str, binding: CronBinding, now: datetime) -> Schedule:
    return Schedule(
        tenant=tenant, agent=agent, name=binding.name, cron=binding.cron, tz=binding.tz, dst=binding.dst,
        overlap=binding.overlap, catch_up=binding.catch_up, window_s=int(binding.window.total_seconds()),
        jitter_s=int(binding.jitter.total_seconds()), since=now, next_fire_at=now, opened=[], now=now,
    )  # fmt: skip


def _kept(changed: Schedule, at: Schedule, same: bool) -> Schedule:
    """The changed schedule with what it was in the middle of; with the `same` times it does not begin anew."""
    return replace(
        changed, opened=at.opened, held_fire=at.held_fire, paused_at=at.paused_at, paused_by=at.paused_by,
        since=at.since if same else changed.since,
    )  # fmt: skip


def _must_accept(agent: Any, schedule: Schedule, event: Any) -> None:
    what = Tick(name=schedule.name, at=schedule.now).model_dump(mode="json") if event is None else event
    try:
        agent.accepted.validate_python(what)
    except ValueError:
        told = "its Tick: give a message or an event that opens each task" if event is None else "this event"
        raise Refused(409, f"The agent {agent.name} does not accept {told}.") from None
