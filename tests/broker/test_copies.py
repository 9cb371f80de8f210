"""Doorbells that come twice, late or never, and workers that die or are told to go: each step is done once."""

from __future__ import annotations

import os
import signal
import time

import pytest

from workers.settings import Settings

from .processes import Process, Stage, reach

pytestmark = pytest.mark.timeout(180)


def done_once(s: Stage, task: str, steps: int = 1) -> None:
    """Nothing of it happened twice."""
    row = s.row(task)
    assert (row["status"], row["fence"], row["current_step"]) == ("done", steps, steps)
    assert s.fleet.kinds(task).count("ModelAsked") == s.fleet.kinds(task).count("Decided")


def test_b01_copies_of_a_running_steps_doorbell_are_no_ops(s: Stage) -> None:
    both = [s.worker(slots=4, ready=False) for _ in range(2)]
    s.until_up(*both)
    task = s.fleet.open("notes", "long")
    s.until(lambda: s.asked("long") == 1)
    s.push(task, copies=40)
    began = time.monotonic()
    s.until(lambda: s.waiting() == 0)
    quick = s.fleet.open("notes", "short")
    s.until_done(quick)
    assert time.monotonic() - began < 5, "copies hold nobody up"
    assert s.redis.hlen("unacked") == 0, "the broker has nothing to deliver once more"
    assert s.row(task)["current_step"] == 0, "it still runs"
    s.gate.set()
    s.until_done(task)
    done_once(s, task)
    assert s.asked("long") == 1, "one model call"


def test_b01_the_brokers_timeout_is_longer_than_any_step() -> None:
    options = reach("workers.app").app.conf.broker_transport_options
    assert options["visibility_timeout"] > 2 * Settings.model_fields["step_deadline"].default + 30


def test_b02_a_doorbell_behind_a_long_step_is_handed_out_once(s: Stage) -> None:
    s.worker(slots=1)
    long = s.fleet.open("notes", "long")
    s.until(lambda: s.asked("long") == 1)
    behind = s.fleet.open("notes", "short")
    s.until(lambda: s.waiting() > 1)  # rung again and again, and taken along by nobody
    assert s.row(behind)["fence"] == 0
    s.worker(slots=1)
    s.until_done(behind)
    s.gate.set()
    s.until_done(long)
    s.until(lambda: s.waiting() == 0)
    for task in (long, behind):
        done_once(s, task)
    assert (s.asked("long"), s.asked("short")) == (1, 1)


def test_b04_a_step_that_kills_its_worker_is_quarantined_and_the_others_are_done(s: Stage) -> None:
    starts, worker = 1, s.worker(scripted=True, dead_after="0.8")
    poison = s.fleet.open("mortal", "die")
    s.many(20, "1 10 0.3")  # so slow that some are under way at each death

    def settled() -> bool:
        nonlocal starts, worker
        if worker.gone:
            starts, worker = starts + 1, s.worker(scripted=True, ready=False, dead_after="0.8")
        return s.row(poison)["status"] == "quarantined" and s.count() == 20

    s.until(settled, 90)
    assert s.row(poison)["reason"] == "worker_lost x3"
    assert starts == 4, "three deaths, and the fourth worker knows better"
    assert not worker.gone
    s.until_done(s.fleet.open("mortal", "live"))


def test_b05_a_dead_workers_step_is_begun_anew_by_our_lease_not_the_brokers(s: Stage) -> None:
    options = reach("workers.app").app.conf.broker_transport_options
    assert (options["unacked_restore_interval"], options["unacked_restore_throttle"]) == (5, 1)
    both = [s.worker(slots=2, ready=False, dead_after="2") for _ in range(2)]
    s.until_up(*both)
    task = s.fleet.open("notes", "long")
    s.until(lambda: s.asked("long") == 1)
    holder = s.one("SELECT a.pid FROM workers_alive a JOIN agent_tasks t ON t.worker_id = a.id")
    os.kill(holder, signal.SIGKILL)
    began = time.monotonic()
    s.until(lambda: s.asked("long") == 2, 20)
    assert time.monotonic() - began < 10
    s.gate.set()
    s.until_done(task)
    assert s.row(task)["current_step"] == 1


def rolled(s: Stage, worker: Process) -> Process:
    """A new worker beside the old, TERM for the old, KILL when it is not gone in five seconds."""
    new = s.worker(slots=4, ready=False, soft_shutdown="2")
    worker.send(signal.SIGTERM)
    until = time.monotonic() + 5
    s.until(lambda: worker.gone or time.monotonic() > until)
    if not worker.gone:
        worker.kill()
    return new


def rolling_restart(s: Stage, workers: int, count: int) -> None:
    """All workers are replaced, one after the other, while so many tasks of three steps each are worked on."""
    old = [s.worker(slots=4, ready=False, soft_shutdown="2") for _ in range(workers)]
    s.until_up(*old)
    tasks = [s.fleet.open("notes", f"keep number {n}") for n in range(count)]
    new = [rolled(s, worker) for worker in old]
    assert sum(worker.process.returncode == 0 for worker in old) == workers, "each left in time, by itself"
    s.until(lambda: s.count() == len(tasks), 60)
    assert s.one("SELECT count(*) FROM notes") == len(tasks)
    assert s.one("SELECT sum(current_step) FROM agent_tasks") == 3 * len(tasks)
    assert s.one("SELECT count(*) - count(DISTINCT (task_id, channel, n)) FROM outbox") == 0
    assert s.one("SELECT max(n) FROM (SELECT count(*) AS n FROM outbox GROUP BY task_id, channel) AS each") == 1
    assert s.one("SELECT max(attempts) FROM agent_tasks") == 0, "no claim counts as a death"
    assert not any(worker.gone for worker in new)


def test_b06_a_rolling_restart_loses_nothing_and_sends_nothing_twice(s: Stage) -> None:
    rolling_restart(s, workers=2, count=50)


@pytest.mark.long
def test_a_rolling_restart_of_four_workers_loses_nothing(s: Stage) -> None:
    rolling_restart(s, workers=4, count=300)


def test_b10_quick_tasks_do_not_wait_behind_a_long_one(s: Stage) -> None:
    s.worker(slots=1)
    long = s.fleet.open("notes", "long")
    s.until(lambda: s.asked("long") == 1)
    quick = [s.fleet.open("notes", "short") for _ in range(3)]
    s.until(lambda: s.waiting() == 3)
    s.worker(slots=1)
    began = time.monotonic()
    s.until(lambda: s.asked("short") == 3)
    assert time.monotonic() - began < 2
    s.until_done(*quick)
    assert s.row(long)["current_step"] == 0
    conf = reach("workers.app").app.conf
    assert conf.worker_prefetch_multiplier == 1 and conf.task_acks_late and conf.worker_disable_prefetch
    assert {queue.name.rpartition(".")[2] for queue in conf.task_queues} == {"answers", "steps", "delivery"}
