"""When schedules fire: daylight saving in five zones, what cron leaves open, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from time import process_time
from typing import Any

import pytest

from triggers.cron import MACROS, MOST_AT_ONCE, Turn, cron, delayed, due, next_due, turns
from twelvefold import Agent, DeclarationError, Message, Tick, on
from twelvefold.bindings import Dst

NEW_YORK, SANTIAGO = "America/New_York", "America/Santiago"


def fires(expression: str, zone: str, after: str, most: int, dst: Dst = "vixie") -> list[str]:
    plan = cron(expression, zone, dst)
    return [plan.local(each).strftime("%m-%d %H:%M%z") for each in islice(plan.fires(instant(after)), most)]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


CHANGES: list[Any] = [
    ("30 2 * * *", NEW_YORK, "2027-03-13T12:00Z", ["03-14 03:00-0400", "03-15 02:30-0400"]),
    ("30 1 * * *", NEW_YORK, "2027-11-06T12:00Z", ["11-07 01:30-0400", "11-08 01:30-0500"]),
    ("*/30 * * * *", NEW_YORK, "2027-11-07T04:59Z",
     ["11-07 01:00-0400", "11-07 01:30-0400", "11-07 01:00-0500", "11-07 01:30-0500", "11-07 02:00-0500"]),
    ("*/30 * * * *", NEW_YORK, "2027-03-14T06:29Z", ["03-14 01:30-0500", "03-14 03:00-0400", "03-14 03:30-0400"]),
    ("0 */2 * * *", NEW_YORK, "2027-03-14T04:00Z", ["03-14 00:00-0500", "03-14 04:00-0400"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2027-10-01T20:00Z", ["10-03 02:30+1100", "10-04 02:15+1100"]),
    ("0 0 * * *", "Africa/Cairo", "2027-04-29T12:00Z", ["04-30 01:00+0300", "05-01 00:00+0300"]),
    ("0 0 * * *", SANTIAGO, "2027-09-04T12:00Z", ["09-05 01:00-0300", "09-06 00:00-0300"]),
    ("0,30 2 * * *", NEW_YORK, "2027-03-13T12:00Z", ["03-14 03:00-0400", "03-15 02:00-0400"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), CHANGES)
def test_the_clocks_change_as_vixie_cron_has_it(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert fires(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), CHANGES)
def test_whichever_instant_one_begins_at_the_times_are_the_same(
    expression: str, zone: str, after: str, expected: list[str]
) -> None:
    plan, begin = cron(expression, zone), instant(after)
    every = list(islice(plan.fires(begin), 60))
    for minutes in range(0, 40 * 60, 10):
        moment = begin + timedelta(minutes=minutes)
        if moment < every[-1]:
            assert plan.next(moment) == next(each for each in every if each > moment)


def test_skip_leaves_out_the_hour_that_does_not_exist_and_utc_knows_no_change() -> None:
    assert fires("30 2 * * *", NEW_YORK, "2027-03-13T12:00Z", 1, "skip") == ["03-15 02:30-0400"]
    assert fires("0 0 * * *", SANTIAGO, "2027-09-04T12:00Z", 1, "skip") == ["09-06 00:00-0300"]
    assert fires("30 1 * * *", NEW_YORK, "2027-11-06T12:00Z", 2, "skip") == ["11-07 01:30-0400", "11-08 01:30-0500"]
    assert fires("0 7 * * *", NEW_YORK, "2027-03-13T12:00Z", 1, "utc") == ["03-14 03:00-0400"]
    assert fires("0 7 * * *", NEW_YORK, "2027-03-13T00:00Z", 1, "utc") == ["03-13 02:00-0500"]


def test_b35_in_the_repeated_hour_what_runs_by_the_hour_runs_in_both() -> None:
    plan = cron("0 * * * *", NEW_YORK)
    found = list(islice(plan.fires(instant("2026-11-01T03:59Z")), 6))
    assert [each.hour for each in found] == [4, 5, 6, 7, 8, 9]


def test_b36_in_the_repeated_hour_a_daily_time_fires_once() -> None:
    found = list(islice(cron("30 1 * * *", NEW_YORK).fires(instant("2026-10-31T12:00Z")), 2))
    assert found == [instant("2026-11-01T05:30Z"), instant("2026-11-02T06:30Z")]


@pytest.mark.parametrize("zone", [NEW_YORK, "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll", SANTIAGO])
def test_b37_a_time_that_does_not_exist_fires_right_after_and_never_twice_a_day(zone: str) -> None:
    assert cron("30 2 * * *", NEW_YORK).next(instant("2026-03-08T00:00-05:00")) == instant("2026-03-08T07:00Z")
    for expression in ("30 2 * * *", "45 2 * * *", "30 1 * * *", "0 0 * * *"):
        plan = cron(expression, zone)
        days = [plan.local(each).date() for each in islice(plan.fires(instant("2027-01-01T12:00Z")), 365)]
        assert len(set(days)) == 365 and (days[-1] - days[0]).days == 364


def test_b38_days_and_weekdays_are_alternatives_unless_one_begins_with_a_star() -> None:
    after = instant("2026-10-01T00:00Z")
    found = list(islice(cron("0 0 13 * 5").fires(after), 5))
    assert [each.strftime("%m-%d") for each in found] == ["10-02", "10-09", "10-13", "10-16", "10-23"]
    assert [each.day for each in islice(cron("0 0 */2 * 5").fires(after), 3)] == [9, 23, 13]
    assert " or " in cron("0 0 13 * 5").sentence


def test_b40_dates_that_are_rare_are_found_and_dates_that_never_come_are_refused() -> None:
    after = instant("2026-10-01T00:00Z")
    assert cron("0 0 29 2 *").next(after) == instant("2028-02-29T00:00Z")
    assert cron("0 0 29 2 *").next(instant("2096-03-01T00:00Z")) == instant("2104-02-29T00:00Z")
    sundays = [each.strftime("%m-%d") for each in islice(cron("48 14 31 6 0").fires(after), 4)]
    assert sundays == ["06-06", "06-13", "06-20", "06-27"]
    begun = process_time()
    for never in ("0 0 30 2 *", "0 0 31 4,6,9,11 *"):
        with pytest.raises(DeclarationError, match="never fires"):
            cron(never)
    assert process_time() - begun < 1


REFUSED = {
    "* * * * * *": "6 fields", "0 0 L * *": "day of the month", "R * * * *": "minute", "@reboot": "@hourly",
    "*/0 * * * *": "step", "0 24 * * *": "hour", "61 * * * *": "minute", "0 0 ? * *": "day of the month",
    "0 0 * * 5L": "day of the week", "0 0 * * MON#1": "day of the week",
    "5/15 * * * *": "minute", "H * * * *": "minute",
    "0 0 * 0 *": "month", "0 0 * * 8": "day of the week", "0 0 * * SAT-SUN": "upwards", "*/99 * * * *": "step",
    "": "0 fields",
    "\u0663 * * * *": "digits", "0 0 * JANUARY *": "JAN", "1,,2 * * * *": "minute", "-1 * * * *": "minute",
    "@daily 5": "2 fields", "0 0 LW * *": "day of the month", "1-5-9 * * * *": "minute",
}  # fmt: skip


@pytest.mark.parametrize(("expression", "told"), REFUSED.items())
def test_b41_what_other_crons_read_differently_is_refused_with_the_field_named(expression: str, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        cron(expression)


def test_macros_names_and_spaces_mean_what_they_say() -> None:
    after = instant("2026-10-01T00:30Z")
    found = [cron(macro).next(after).strftime("%Y-%m-%d %H:%M") for macro in MACROS]
    assert found == ["2026-10-01 01:00", "2026-10-02 00:00", "2026-10-04 00:00", "2026-11-01 00:00", "2027-01-01 00:00"]
    assert cron(" 0  9 * jan  mon-fri ").next(after) == instant("2027-01-01T09:00Z")
    assert cron("0 9 * * 7").next(after) == cron("0 9 * * SUN").next(after)
    assert cron("0 9 * * 1-5", "Europe/Berlin").sentence == "At 09:00 on Monday through Friday, Europe/Berlin"


@pytest.mark.parametrize("zone", ["Europe/Berln", "../../etc/passwd", "", "EUROPE/BERLIN"])
def test_a_zone_that_is_none_is_refused_and_one_like_it_is_named(zone: str) -> None:
    with pytest.raises(DeclarationError, match="Europe/Berlin"):
        cron("@daily", zone)


def test_jitter_is_the_same_at_every_attempt_differs_by_name_and_ends_before_the_next_time() -> None:
    fire, following, hour = instant("2027-01-01T00:00Z"), instant("2027-01-01T00:01Z"), timedelta(hours=1)
    first = delayed(fire, following, hour, "a")
    assert first == delayed(fire, following, hour, "a") != delayed(fire, following, hour, "b")
    shifts = [delayed(fire, following, hour, str(n)) - fire for n in range(200)]
    assert timedelta(0) <= min(shifts) < timedelta(seconds=5) and timedelta(seconds=55) < max(shifts) < following - fire
    plan, end = cron("* * * * *"), fire + hour
    assert due(plan, fire, end, timedelta(0), "a", 100)[-1] == end
    assert due(plan, fire, end, hour, "a", 5) == [fire + timedelta(minutes=n) for n in range(1, 6)]
    assert next_due(plan, fire, hour, "a") == delayed(following, following + timedelta(minutes=1), hour, "a")


def test_what_was_missed_is_made_up_for_as_the_schedule_says() -> None:
    now, plan, none = instant("2027-01-01T17:20Z"), cron("0 * * * *"), timedelta(0)
    times = due(plan, instant("2027-01-01T09:10Z"), now, none, "a", 100)

    def fired(catch_up: Any, hours: int, at: datetime = now) -> list[int]:
        found = turns(times, at, catch_up, timedelta(hours=hours), none)
        assert len(found) == len(times) == 8 and {turn.passed for turn in found} <= {"", "missed", "superseded"}
        return [turn.fire.hour for turn in found if not turn.passed]

    assert fired("latest", 1) == fired("latest", 24) == [17]
    assert fired("all", 24) == [10, 11, 12, 13, 14, 15, 16, 17] and fired("all", 2) == [16, 17]
    assert fired("none", 24) == fired("latest", 0) == []
    on_time = instant("2027-01-01T17:00:30Z")
    assert fired("none", 24, on_time) == fired("latest", 0, on_time) == [17]
    assert [turn.late for turn in turns(times, on_time, "all", timedelta(days=1), none)] == [True] * 7 + [False]


def test_of_a_long_outage_the_newest_hundred_are_made_up_for_and_each_time_is_accounted_for_once() -> None:
    plan, since, now, none = cron("* * * * *"), instant("2027-01-01T00:00Z"), instant("2027-01-03T02:00Z"), timedelta(0)
    seen: list[Turn] = []
    while times := due(plan, since, now, none, "a", MOST_AT_ONCE):
        seen += turns(times, now, "all", timedelta(days=30), none)
        since = seen[-1].fire
    assert [turn.fire for turn in seen] == list(islice(plan.fires(instant("2027-01-01T00:00Z")), 3000))
    assert [turn.passed for turn in seen] == ["missed"] * 2900 + [""] * 100


def test_an_agent_with_a_schedule_accepts_its_tick_unless_the_tick_is_read() -> None:
    tick = {"name": "sweep", "at": "2027-01-01T00:00:00+00:00"}
    plain = Agent(name="a", tools=[], triggers=[on.cron("@daily", name="sweep")])
    assert isinstance(plain.accepted.validate_python(tick), Tick)
    assert isinstance(plain.accepted.validate_python({"text": "x"}), Message)
    reading = on.cron("@daily", name="sweep", read=lambda tick: Message(text=tick.name))
    with pytest.raises(ValueError, match="text"):
        Agent(name="a", tools=[], triggers=[reading]).accepted.validate_python(tick)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Sweep it"}, {"catch_up": "all"}, {"name": ""}, {"dst": "never"}, {"overlap": "queue"},
        {"catch_up": "some"},
        {"jitter": timedelta(hours=2)}, {"window": timedelta(days=-1)}, {"window": timedelta(milliseconds=5)},
    ],
)  # fmt: skip
def test_a_schedule_that_is_declared_wrongly_says_how_to_mend_it(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match=r"such as|is one of|whole seconds|needs overlap"):
        on.cron("@daily", **{"name": "sweep", **wrong})
