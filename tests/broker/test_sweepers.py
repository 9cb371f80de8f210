"""Every process sweeps, one at a time; and nobody is called dead by somebody who was away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from console.embedded import Postgres
from tests.harness import Fleet
from workers.heart import Heart
from workers.ids import uuid7
from workers.pulse import Pulse
from workers.store import alive, claims
from workers.sweeper import SURE_BEATS, sweep
from workers.work import Runtime

from .processes import Stage

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def three(s: Stage) -> Iterator[list[Runtime]]:
    """Three sweepers on one database, a tenth of a second a sweep."""
    with ExitStack() as stack:
        runs = []
        for _ in range(3):
            fleet = Fleet(s.database_url, lambda task: None, broker=s.valkey.url, sweep=0.1, db_pool=2)  # type: ignore[arg-type, return-value]
            stack.callback(fleet.close)
            runs.append(fleet.run)
        yield runs


def test_one_sweeper_works_at_a_time_and_another_takes_over(three: list[Runtime]) -> None:
    first, second, third = three
    assert sweep(first) != {}
    for _ in range(5):
        assert [sweep(run) for run in (second, third)] == [{}, {}]
        assert sweep(first) != {}, "it renews its lease"
    stopped = time.monotonic()
    while not (took := [bool(sweep(run)) for run in (second, third)]).count(True):
        assert time.monotonic() - stopped < 5, "nobody took over"
        time.sleep(0.02)
    assert took.count(True) == 1
    assert time.monotonic() - stopped > 1, "not before the lease was over"
    assert sweep(first) == {}, "who comes back finds another at work"


def test_after_an_outage_nobody_is_dead_before_five_heartbeats_of_ones_own(
    s: Stage, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = s.fleet.open("notes", "hello")
    other, dead = s.fleet.run, uuid7()
    alive.register(other.db, other.worker, {"steps": 1}, other.registry.known)
    alive.register(other.db, dead, {"steps": 1}, other.registry.known)
    held = claims.claim(other.db, task, dead, other.registry.known, 600)
    assert held is not None

    settings = other.settings.model_copy(update={"heartbeat": 0.2, "dead_after": 0.8, "sweep": 0.05})
    run = replace(other, worker=uuid7(), settings=settings, pulse=Pulse())
    freed: list[tuple[bool, int]] = []
    free_dead = alive.free_dead

    def watched(*args: Any) -> int:
        count = free_dead(*args)
        freed.append((run.pulse.steady(SURE_BEATS), count))
        return count

    monkeypatch.setattr(alive, "free_dead", watched)
    heart = Heart(run, {"steps": 1}, 1, on_silence=lambda: None)
    heart.start()
    try:
        s.until(lambda: alive.beat(other.db, dead) and len(freed) > 1)
        assert sum(count for _, count in freed) == 0, "as long as it beats it is alive"
        postgres.restart(down_for=1.5)
        back, before = time.monotonic(), len(freed)
        s.until(lambda: len(freed) > before)
        assert time.monotonic() - back > 0.2 * (SURE_BEATS - 1) - 0.05, "it was away itself, and wants beats of its own"
        s.until(lambda: s.row(task)["worker_id"] is None)
    finally:
        heart.stop()
    assert all(sure for sure, _ in freed)
    assert sum(count for _, count in freed) == 1, "the dead one, in the end"


@pytest.mark.long
def test_who_beats_again_at_once_after_an_outage_keeps_its_claims(s: Stage, postgres: Postgres) -> None:
    task = s.fleet.open("notes", "long")
    both = [s.worker(slots=2, ready=False) for _ in range(2)]
    s.until_up(*both)
    s.until(lambda: s.asked("long") == 1)
    before = time.monotonic()
    s.until(lambda: time.monotonic() - before > 1.2)  # everybody is sure of himself
    postgres.restart(down_for=1.5)
    came = time.monotonic()
    s.until(lambda: time.monotonic() - came > 2)
    s.gate.set()
    s.until_done(task)
    assert s.row(task)["fence"] == 1
    assert s.asked("long") == 1, "one model call"
