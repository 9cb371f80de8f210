"""Schedules on a real database: each time has one arrival, whoever fires it, however often and whatever the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import change, once, together
from tests.harness import Fleet, fleet
from triggers import cron
from twelvefold import Done, Ignore, Message, Task, Text, Tick, Wait, on
from twelvefold.tool import Tool
from workers import schedules as firing
from workers.decisions import Refused
from workers.intake import Intake
from workers.schedules import fire
from workers.store import schedules
from workers.sweeper import sweep
from workers.timetable import Timetable

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NAMES = {"tenant": "t1", "agent": "notes", "name": "sweep"}


def done(task: Task) -> Tool[Any]:
    """Be done at once."""
    return Done(outcome=Text(text=f"{task.event}"))


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents are done at once."""
    with fleet(fresh_database, done) as found:
        yield found


def declared(f: Fleet, *bindings: Any, since: str = "2027-01-01T00:00Z") -> Timetable:
    """The schedules of `notes`, everything up to `since` accounted for."""
    change(f, "notes", triggers=list(bindings))
    table = Timetable(f.intake)
    table.declare("t1")
    begin(f, since)
    return table


def begin(f: Fleet, since: str) -> None:
    """Whatever lies before is accounted for."""
    with f.run.db.connection() as connection:
        connection.execute("UPDATE schedules SET since = %(at)s, next_fire_at = %(at)s", {"at": instant(since)})


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def tick(f: Fleet, now: str | datetime) -> int:
    """What a sweep at this time opens."""
    return fire(f.intake, f.run.log, instant(now) if isinstance(now, str) else now)


def arrived(f: Fleet) -> dict[str, str]:
    """What became of each time, oldest first."""
    found = f.run.db.rows("SELECT key, state, reason FROM arrivals WHERE source = 'schedule' ORDER BY key")
    return {row["key"].partition(" ")[2]: row["reason"] or row["state"] for row in found}


def tasks(f: Fleet) -> list[str]:
    return [row["id"] for row in f.run.db.rows("SELECT id::text FROM agent_tasks ORDER BY id")]


def test_a_declared_schedule_opens_a_task_with_its_tick_or_what_is_read_of_it(f: Fleet) -> None:
    def read(found: Tick) -> Any:
        return Ignore("holiday") if found.at.day == 2 else Message(text=f"report of {found.at:%m-%d}")

    def broken(found: Tick) -> Any:
        raise KeyError(found.name)

    declared(
        f, on.cron("0 9 * * *", name="sweep"), on.cron("5 9 * * *", name="report", read=read),
        on.cron("6 9 * * *", name="broken", read=broken),
    )  # fmt: skip
    assert tick(f, "2027-01-01T08:59:59Z") == 0 and not arrived(f)
    assert tick(f, "2027-01-01T09:06:10Z") == 2 and tick(f, "2027-01-01T09:06:11Z") == 0
    first, second = tasks(f)
    assert [f.drain(each) for each in (first, second)] == ["done"] * 2
    assert "name='sweep'" in f.row(first)["outcome"]["text"] and "late=True" in f.row(first)["outcome"]["text"]
    assert "report of 01-01" in f.row(second)["outcome"]["text"]
    assert not f.state(first).tainted
    assert tick(f, "2027-01-02T09:05:01Z") == 1, "the one of 09:00; it is ignored what is a holiday"
    became = f.run.db.rows("SELECT type, coalesce(reason, state) AS became FROM arrivals ORDER BY key")
    assert [(row["type"], row["became"]) for row in became] == [
        ("notes.broken", "mapping"), ("notes.report", "accepted"), ("notes.report", "holiday"),
        ("notes.sweep", "accepted"), ("notes.sweep", "accepted"),
    ]  # fmt: skip


def test_b34_every_time_of_an_outage_is_accounted_for_and_made_up_for_as_declared(fresh_database: Any) -> None:
    expected: dict[Any, list[int]] = {"latest": [17], "none": [], "all": list(range(10, 18))}
    with fleet(fresh_database, done) as f:
        bindings = [
            on.cron("0 * * * *", name=how, catch_up=how, overlap="allow", window=timedelta(days=1)) for how in expected
        ]
        declared(f, *bindings, since="2027-01-01T09:10Z")
        assert tick(f, "2027-01-01T17:20Z") == 9
        rows = f.run.db.rows("SELECT type, key, state, payload ->> 'late' AS late, id FROM arrivals ORDER BY id")
        assert len(rows) == 24, "eight times for each"
        for how, hours in expected.items():
            opened = [row for row in rows if row["type"] == f"notes.{how}" and row["state"] == "accepted"]
            assert [int(row["key"][-6:-4]) for row in opened] == hours, "oldest first"
            assert {row["late"] for row in opened} <= {"true"}


def test_while_the_last_one_runs_a_time_is_skipped_kept_or_opened_as_declared(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="x")) if task.did(Wait) else Wait(why="long", seconds=3600)

    with fleet(fresh_database, script) as f:
        names: list[Any] = ["skip", "buffer_one", "allow"]
        declared(f, *[on.cron("* * * * *", name=name, overlap=name) for name in names])
        for minute in range(1, 5):
            tick(f, f"2027-01-01T00:0{minute}:01Z")
            for task in tasks(f):
                f.step(task)
        said = f.run.db.rows("SELECT type, coalesce(reason, state) AS became FROM arrivals ORDER BY id")
        became = {n: [row["became"] for row in said if row["type"] == f"notes.{n}"] for n in names}
        assert became == {
            "skip": ["accepted", "overlap", "overlap", "overlap"], "allow": ["accepted"] * 4,
            "buffer_one": ["accepted", "overlap", "overlap"],
        }  # fmt: skip
        (held,) = [each for each in schedules.listed(f.run.db) if each.held_fire]
        assert held.held_fire == instant("2027-01-01T00:02Z"), "one is kept, and the oldest"
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET status = 'done' WHERE status = 'waiting'")
        assert tick(f, "2027-01-01T00:04:30Z") == 1
        assert arrived(f)["2027-01-01T00:02Z"] and not [x for x in schedules.listed(f.run.db) if x.held_fire]
        row = f.run.db.rows("SELECT state FROM arrivals WHERE key = 'notes.buffer_one 2027-01-01T00:02Z'")
        assert [each["state"] for each in row] == ["accepted"]


def test_a_task_that_waits_for_a_person_does_not_count_as_running(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        declared(f, on.cron("* * * * *", name="sweep"))
        assert tick(f, "2027-01-01T00:01:01Z") == 1
        assert tick(f, "2027-01-01T00:02:01Z") == 0, "it is ready, and so runs"
        assert f.step(tasks(f)[0]) == "waiting"
        assert tick(f, "2027-01-01T00:03:01Z") == 1
        assert list(arrived(f).values()) == ["accepted", "overlap", "accepted"]
        assert len(schedules.listed(f.run.db)[0].opened) == 2


def test_a_clock_that_steps_back_fires_nothing_twice_and_one_that_jumps_is_an_outage(f: Fleet) -> None:
    declared(f, on.cron("* * * * *", name="sweep", overlap="allow"))
    for text in ("00:01:01", "00:02:01", "00:03:01", "23:58:00"):
        tick(f, f"2027-01-01T{text}Z") if text < "12" else tick(f, f"2026-12-31T{text}Z")
    for minute in (1, 2, 3):
        assert tick(f, f"2027-01-01T00:0{minute}:30Z") == 0
    assert list(arrived(f).values()) == ["accepted"] * 3
    assert tick(f, "2027-01-01T02:03:30Z") == 1
    assert list(arrived(f).values())[-1] == "accepted" and len(arrived(f)) == 123
    assert sorted(set(arrived(f).values())) == ["accepted", "missed", "superseded"]


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Makes functions before or after which the process may be killed."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.kills = dice, 0

    def __call__(self, act: Any) -> Any:
        """The function, made mortal."""

        def acting(*args: Any, **kwargs: Any) -> Any:
            self._may_die()
            found = act(*args, **kwargs)
            self._may_die()
            return found

        return acting

    def _may_die(self) -> None:
        if self.dice.random() < 0.05:
            self.kills += 1
            raise Killed


@pytest.mark.parametrize(
    "often", [pytest.param(8, id="8h"), pytest.param(1, id="1h", marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_two_schedulers_interrupted_anywhere_over_eight_weeks_give_each_time_one_arrival(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, often: int
) -> None:
    dice = Random(7)
    mortal = Mortal(dice)

    with fleet(fresh_database, done) as f:
        long = timedelta(days=30)
        kinds: Any = {"overlap": "allow", "catch_up": "all", "window": long}
        zone = "America/New_York"
        declared(
            f, on.cron("30 1 * * *", name="daily", tz=zone, **kinds),
            on.cron(f"0 */{often} * * *", name="often", **kinds),
            on.cron("30 2 * * *", name="gap", tz=zone, jitter=HOUR, **kinds), since="2027-10-10T00:00Z",
        )  # fmt: skip
        begun, end = instant("2027-10-10T00:00Z"), instant("2027-12-05T00:00Z")
        instances = [Intake(f.run.db, f.run.registry, f.run.log) for _ in range(2)]
        monkeypatch.setattr(schedules, "store", mortal(schedules.store))
        monkeypatch.setattr(firing, "open_at", mortal(firing.open_at))
        now = begun

        def go(intake: Intake) -> None:
            try:
                fire(intake, f.run.log, now)
            except Killed:
                return

        while now < end:
            now += HOUR * often * dice.choice((1, 1, 1, 2, 5))
            for said in together(*[lambda i=i: go(i) for i in instances]) if dice.random() < 0.1 else []:
                assert said is None
            go(dice.choice(instances))
        monkeypatch.undo()
        while tick(f, now + HOUR):
            pass
        assert mortal.kills > 30, "or this has shown nothing"
        for binding in f.run.registry.schedules.values():
            all_arrived(f, binding, begun, now + HOUR)
        assert f.one("SELECT count(*) FROM agent_tasks") == f.one("SELECT count(*) FROM arrivals")


def all_arrived(f: Fleet, binding: Any, begun: datetime, end: datetime) -> None:
    """Each time of the schedule has one arrival that opened a task, and there are no others."""
    plan = cron.cron(binding.cron, binding.tz)
    times = cron.due(plan, begun, end, binding.jitter, f"notes.{binding.name}", 2000)
    rows = f.run.db.rows(
        "SELECT key FROM arrivals WHERE type = %(type)s AND state = 'accepted' ORDER BY key",
        {"type": f"notes.{binding.name}"},
    )
    expected = [f"notes.{binding.name} {each:%Y-%m-%dT%H:%MZ}" for each in times]
    assert len(expected) >= 56 and [row["key"] for row in rows] == expected


def test_what_people_change_holds_at_the_next_sweep_and_a_resumed_schedule_floods_nobody(f: Fleet) -> None:
    table = Timetable(f.intake)
    made = table.new("t1", "notes", on.cron("* * * * *", name="sweep"), {"text": "look around"})
    assert made.full_name == "notes.sweep" and len(table.coming(made)) == 5
    begin(f, "2027-01-01T00:00Z")
    assert tick(f, "2027-01-01T00:01:01Z") == 1
    f.drain(tasks(f)[0])
    assert "look around" in f.row(tasks(f)[0])["outcome"]["text"]
    table.pause("t1", "notes.sweep", "ann")
    table.pause("t1", "notes.sweep", "bob")
    assert table.find("t1", "notes.sweep").paused_by == "ann"
    assert tick(f, "2027-01-01T03:00:01Z") == 0 and list(arrived(f).values())[1:] == ["paused"] * 179
    table.resume("t1", "notes.sweep")
    now = table.find("t1", "notes.sweep").now
    assert table.find("t1", "notes.sweep").since >= now - MINUTE
    assert tick(f, now + timedelta(seconds=1)) <= 1
    table.edit("t1", "notes.sweep", cron="0 0 1 1 *", tz="Europe/Berlin", overlap="allow")
    found = table.find("t1", "notes.sweep")
    assert (found.cron, found.overlap) == ("0 0 1 1 *", "allow") and found.event == {"text": "look around"}
    assert found.next_fire_at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%m-%d %H:%M") == "01-01 00:00"
    count = len(arrived(f))
    assert tick(f, now + 3 * HOUR) == 0 and len(arrived(f)) == count


def test_times_that_were_passed_over_are_backfilled_once(f: Fleet) -> None:
    table = declared(f, on.cron("0 * * * *", name="sweep"), since="2026-01-01T00:00Z")
    assert tick(f, "2026-01-01T05:00:10Z") == 1
    stretch = instant("2026-01-01T02:00Z"), instant("2026-01-01T06:00Z")
    assert [became for _, became in table.backfill("t1", "notes.sweep", *stretch)] == [
        "accepted", "accepted", "accepted", "fired before", "accepted",
    ]  # fmt: skip
    assert {became for _, became in table.backfill("t1", "notes.sweep", *stretch)} == {
        "fired before", "backfilled before",
    }  # fmt: skip
    assert len(tasks(f)) == 5
    assert table.backfill("t1", "notes.sweep", instant("2099-01-01T00:00Z"), instant("2099-02-01T00:00Z")) == []
    with pytest.raises(Refused, match="more than 100"):
        table.backfill("t1", "notes.sweep", instant("2026-01-01T00:00Z"), instant("2026-03-01T00:00Z"))
    with pytest.raises(Refused, match="no schedule"):
        table.backfill("t2", "notes.sweep", *stretch)


def test_a_declaration_that_is_gone_is_disabled_and_begins_anew_when_it_returns(f: Fleet) -> None:
    sweep = on.cron("* * * * *", name="sweep")
    table = declared(f, sweep, on.cron("@daily", name="other"))
    table.pause("t1", "notes.sweep", "ann")
    change(f, "notes", triggers=[])
    assert Timetable(f.intake).declare("t1") == (0, 2)
    assert Timetable(f.intake).declare("t1") == (0, 0)
    assert tick(f, "2027-01-01T00:05:01Z") == 0 and not arrived(f)
    change(f, "notes", triggers=[sweep])
    table = Timetable(f.intake)
    assert table.declare("t1") == (1, 0)
    found = table.find("t1", "notes.sweep")
    assert found.disabled_at is None and found.paused_by == "ann" and found.since > found.now - MINUTE
    change(f, "notes", triggers=[replace(sweep, jitter=MINUTE)])
    table = Timetable(f.intake)
    table.declare("t1")
    assert table.find("t1", "notes.sweep").since == found.since, "its times are the same"
    with pytest.raises(Refused, match=r"its on\.cron"):
        table.edit("t1", "notes.sweep", cron="@daily")
    with pytest.raises(Refused, match="already"):
        table.new("t1", "notes", sweep)
    with pytest.raises(Refused, match="Tick"):
        table.new("t1", "refunds", on.cron("@daily", name="new"))
    with pytest.raises(Refused, match="no agent"):
        table.new("t1", "nobody", sweep)


def test_new_rules_for_a_zone_move_what_comes_and_nothing_that_was(f: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    table = declared(f, on.cron("0 9 * * *", name="sweep", tz="Europe/Berlin"), since="2027-01-01T00:00Z")
    tick(f, "2027-01-01T08:00:10Z")
    before = arrived(f)
    assert table.recompute() == 0
    monkeypatch.setattr(cron, "_zone", lambda name: ZoneInfo("Europe/Moscow"))
    assert table.find("t1", "notes.sweep").next_fire_at == instant("2027-01-02T08:00Z")
    assert table.recompute() == 1
    assert table.find("t1", "notes.sweep").next_fire_at == instant("2027-01-02T06:00Z") and arrived(f) == before


def test_b32_b33_schedules_fire_without_any_broker_and_what_is_overdue_is_told(f: Fleet) -> None:
    declared(f, on.cron("* * * * *", name="sweep"), since="2027-01-01T00:00Z")
    with f.run.db.connection() as connection:
        connection.execute(
            "UPDATE schedules SET since = clock_timestamp() - interval '3 min',"
            " next_fire_at = clock_timestamp() - interval '3 min'"
        )
    assert schedules.overdue(f.run.db, "t1", 120) == ["notes.sweep"] and not schedules.overdue(f.run.db, "t2", 120)
    assert sweep(f.run)["fired"] == 1, "by the database's clock, with a broker that does not answer"
    assert not schedules.overdue(f.run.db, None, 120)


def test_a_schedule_that_is_broken_does_not_keep_the_others_from_firing(f: Fleet) -> None:
    declared(f, on.cron("* * * * *", name="a"), on.cron("* * * * *", name="b"))
    with f.run.db.connection() as connection:
        connection.execute("UPDATE schedules SET cron = 'nonsense' WHERE name = 'a'")
    assert tick(f, "2027-01-01T00:01:01Z") == 1
