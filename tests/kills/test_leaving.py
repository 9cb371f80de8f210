"""A worker told to go: it finishes what it can, gives back the rest, and is gone in time whatever is broken."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from console.embedded import Postgres, Valkey
from tests.kills.processes import Worker, World, world
from tests.proxy import Proxy

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]

SOFT = 1.0


@pytest.fixture
def w(fresh_database: Any, valkey: Valkey) -> Iterator[World]:
    """A world without workers."""
    valkey.start()
    with world(fresh_database, valkey) as made:
        yield made


def leave(worker: Worker, within: float, how: signal.Signals = signal.SIGTERM) -> int:
    """Tell it to go; its exit code. Fails when it takes longer than `within` seconds."""
    told = time.monotonic()
    worker.send(how)
    code = worker.process.wait(within + 20)
    assert time.monotonic() - told <= within
    return code


def soft(seconds: float) -> dict[str, str]:
    """The setting: so long a worker may finish what it does."""
    return {"TWELVEFOLD_SOFT_SHUTDOWN": str(seconds)}


def test_sigterm_in_mid_step_gives_the_claim_back(w: World) -> None:
    w.model.hold()
    first = w.worker(env=soft(SOFT))
    task = w.pay()
    w.model.waiting(1, 30)
    assert leave(first, SOFT + 3) == 0
    row = w.fleet.row(task)
    assert (row["worker_id"], row["attempts"], row["status"]) == (None, 0, "ready"), "released, not left to expire"
    assert w.one("SELECT count(*) FROM workers_alive") == 0
    w.model.release()
    w.worker()
    w.until_status(task, "done")
    assert len(w.service.effects) == len(w.posts()) == 1


def test_sigterm_lets_an_effect_end_that_ends_in_time(w: World) -> None:
    w.service.hold()
    first = w.worker(env=soft(20))
    w.worker(lanes=("answers",))  # it would free what a worker holds whose heart has stopped
    sure = "SELECT min(heartbeat - started_at) > interval '2 s' FROM workers_alive"
    w.until(lambda: w.one(sure) is True)
    task = w.pay()
    w.service.waiting(1, 30)
    first.send(signal.SIGTERM)
    late = time.monotonic() + 2.5  # longer than it takes to be dead
    w.until(lambda: time.monotonic() > late)
    assert first.process.poll() is None
    w.service.release()
    assert first.process.wait(10) == 0
    row = w.fleet.row(task)
    assert (row["fence"], row["attempts"], row["worker_id"]) == (2, 0, None)
    assert w.fleet.kinds(task)[-2:] == ["Started", "Returned"], "no doubt: it heard the answer"
    assert w.one("SELECT count(*) FROM refunds") == len(w.posts()) == 1


@pytest.mark.parametrize("what", ["gone", "silent"])
def test_a_database_that_is_gone_keeps_nobody_from_leaving(w: World, postgres: Postgres, what: str) -> None:
    with Proxy(postgres.socket) as line:
        w.model.hold()
        first = w.worker(database=line.url(w.app_url), env=soft(SOFT))
        task = w.pay()
        w.model.waiting(1, 30)
        if what == "gone":
            postgres.stop()
        else:
            line.black_hole(True)
        assert leave(first, SOFT + 6) == 0
        postgres.start()
        line.black_hole(False)
    w.model.release()
    w.worker()
    w.until_status(task, "done")
    assert len(w.service.effects) == len(w.posts()) == 1


def test_a_doorbell_that_a_leaving_worker_takes_is_rung_again_at_once(w: World) -> None:
    w.model.hold()
    first = w.worker(env=soft(30))
    held = w.fleet.open("notes", "keep_note one")
    w.model.waiting(1, 30)
    second = w.worker(env={"TWELVEFOLD_RENUDGE": "60"})
    w.fleet.run.lanes.prefix = w.prefix
    first.send(signal.SIGTERM)
    tasks = [w.fleet.open("notes", f"keep_note {n}") for n in range(6)]
    w.until(lambda: len(w.model.requests) == 7, 15)
    w.model.release()
    for task in [held, *tasks]:
        w.until_status(task, "done")
    assert first.process.wait(10) == 0
    assert second.process.poll() is None


def test_sigquit_gives_back_too(w: World) -> None:
    w.model.hold()
    first = w.worker(env=soft(SOFT))
    task = w.pay()
    w.model.waiting(1, 30)
    assert leave(first, SOFT + 3, signal.SIGQUIT) == 1, "a cold end is no success"
    row = w.fleet.row(task)
    assert (row["worker_id"], row["attempts"]) == (None, 0)
