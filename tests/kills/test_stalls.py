"""A database that stalls, a heart that hangs, a pool that is full: nobody is called dead who is not, and nobody who has
lost sight of the database begins anything outside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from console.embedded import Postgres, Valkey
from tests.kills.processes import World, world
from tests.proxy import Proxy

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]

BEATS = b"UPDATE workers_alive SET heartbeat"
DEAD_AFTER = 1.6


@pytest.fixture
def w(fresh_database: Any, valkey: Valkey) -> Iterator[World]:
    """A world without workers."""
    valkey.start()
    with world(fresh_database, valkey) as made:
        yield made


def passes(w: World, seconds: float) -> None:
    """Let so much time pass."""
    until = time.monotonic() + seconds
    w.until(lambda: time.monotonic() > until, seconds + 10)


@pytest.fixture
def lines(postgres: Postgres) -> Iterator[tuple[Proxy, Proxy]]:
    """Two ways to the database."""
    with Proxy(postgres.socket) as first, Proxy(postgres.socket) as second:
        yield first, second


def test_who_comes_back_first_after_a_stall_calls_nobody_dead(w: World, lines: tuple[Proxy, Proxy]) -> None:
    mine, other = lines
    w.model.hold()
    w.worker(database=other.url(w.app_url))
    task = w.fleet.open("notes", "keep_note one")
    w.model.waiting(1, 30)
    w.worker(database=mine.url(w.app_url))
    before = w.fleet.row(task)
    beats = "SELECT count(*) FROM workers_alive WHERE heartbeat - started_at > interval '2 s'"
    w.until(lambda: w.one(beats) == 2)  # both have beaten often enough to call others dead
    for line in lines:
        line.black_hole(True)
    passes(w, 2 * DEAD_AFTER)
    mine.black_hole(False)
    passes(w, DEAD_AFTER / 2)  # the other's beats are still on their way
    other.black_hole(False)
    row = w.fleet.row(task)
    assert (row["worker_id"], row["fence"]) == (before["worker_id"], before["fence"])
    w.model.release()
    w.until_status(task, "done")
    assert len(w.model.requests) == 2, "no model call was repeated"


def test_what_was_decided_before_a_stall_is_not_carried_out_after_it(w: World, lines: tuple[Proxy, Proxy]) -> None:
    mine, other = lines
    w.model.hold()
    rule = mine.hold_next(b"WITH dead AS")
    w.worker(database=other.url(w.app_url), env={"TWELVEFOLD_SWEEP": "600"})
    task = w.fleet.open("notes", "keep_note one")
    w.worker(database=mine.url(w.app_url))
    w.model.waiting(1, 30)
    before = w.fleet.row(task)
    rule.wait(30)  # about to free whoever is dead, of whom there are none
    for line in lines:
        line.black_hole(True)
    passes(w, 2 * DEAD_AFTER)
    rule.release()
    mine.black_hole(False)
    passes(w, DEAD_AFTER / 2)
    other.black_hole(False)
    row = w.fleet.row(task)
    assert (row["worker_id"], row["fence"]) == (before["worker_id"], before["fence"])
    w.model.release()
    w.until_status(task, "done")


def test_a_worker_whose_heart_hangs_begins_nothing_outside(w: World, lines: tuple[Proxy, Proxy]) -> None:
    line, _ = lines
    w.model.hold()
    rule = line.hold_next(BEATS)
    w.worker(database=line.url(w.app_url))
    task = w.pay("pay_again")
    w.model.waiting(1, 30)
    rule.wait(30)
    passes(w, 5.5)  # longer than a heartbeat is trusted
    w.model.release()
    w.until(lambda: w.workers[0].said('"let_go"'))
    passes(w, 1)
    assert w.service.begun == []
    assert "Started" not in w.fleet.kinds(task)
    rule.release()
    w.until_status(task, "done")
    assert len(w.posts()) == 1


def test_a_full_pool_does_not_stop_the_heart(w: World, fresh_database: Any) -> None:
    w.worker(env={"TWELVEFOLD_DB_POOL": "2"})
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(fresh_database.owner.replace("+psycopg", "")))
        owner.execute("LOCK TABLE notes IN ACCESS EXCLUSIVE MODE")
        tasks = [w.fleet.open("notes", f"keep_note number {n}") for n in range(4)]
        w.until(lambda: waiting_for_locks(w) == 2)
        since = w.one("SELECT clock_timestamp()")
        passes(w, DEAD_AFTER)
        assert waiting_for_locks(w) == 2, "both connections are taken all the while"
        beats = "SELECT heartbeat > %(since)s::timestamptz + interval '1 s' FROM workers_alive"
        assert w.one(beats, since=since), "it beats all the same"
    for task in tasks:
        w.until_status(task, "done")


def waiting_for_locks(w: World) -> int:
    """How many statements of the workers wait for a lock."""
    return int(w.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename ~ '_app$'"))


def test_a_lane_that_nobody_serves_keeps_nobody_waiting(w: World) -> None:
    w.worker(lanes=("steps", "delivery"))
    task = w.fleet.open("notes", "keep_note one")
    w.until_status(task, "done")
    w.fleet.intake.message(task, source="test", key="again", text="keep_note two", sender="ada")
    assert w.fleet.row(task)["lane"] == "answers"
    w.until(lambda: "Reopened" in w.fleet.kinds(task))
    w.until_status(task, "done")
