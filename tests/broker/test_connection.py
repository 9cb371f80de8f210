"""The broker goes away, goes read-only, falls silent, runs full: nothing is lost and nobody is left deaf."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from console import web
from console.migrate import ROOT
from tests.proxy import Proxy
from triggers.schemes import GITHUB
from triggers.signature import sign
from workers.lanes import LANES
from workers.pulse import Canary

from .processes import Process, Stage, celery, settings_of

pytestmark = pytest.mark.timeout(180)

DEAF: dict[str, Any] = {"canary": "0.3", "silence": "3", "soft_shutdown": "1"}
"""Fifteen times faster than shipped."""


class Watched:
    """A worker that is started again whenever it has left, as a supervisor would do."""

    def __init__(self, s: Stage, **change: Any) -> None:
        self.s, self.change = s, change
        self.starts = 0
        self.now: Process
        self._start()

    def _start(self) -> None:
        self.now = self.s.worker(ready=self.starts == 0, scripted=True, **self.change)
        self.starts += 1

    def tend(self) -> bool:
        """Start it again if it has left; always True."""
        if self.now.gone:
            self._start()
        return True


def test_b16_cut_and_silenced_connections_leave_no_deaf_worker(s: Stage) -> None:
    dice = random.Random(16)
    with Proxy("127.0.0.1", s.valkey.port) as proxy:
        watched = Watched(s, broker=proxy.url(s.valkey.url), **DEAF)
        for _ in range(20):
            pause = time.monotonic() + dice.uniform(0.02, 0.25)
            s.until(lambda until=pause: time.monotonic() > until)  # type: ignore[misc]
            proxy.cut()
        proxy.black_hole(True)
        s.many(20, "1 10 0")
        pause = time.monotonic() + 3
        s.until(lambda: watched.tend() and time.monotonic() > pause)
        proxy.black_hole(False)
        s.until(lambda: watched.tend() and s.count() == 20, 30)
        assert watched.starts <= 3


def test_b16_a_worker_that_consumes_nothing_leaves_to_be_started_again(s: Stage) -> None:
    worker = s.worker(scripted=True, **DEAF)
    canary = f"{s.prefix}.canary.{s.one('SELECT id::text FROM workers_alive')}"
    with celery(s) as app:
        s.until(lambda: bool(app.control.ping(timeout=1)))
        for lane in (canary, *(f"{s.prefix}.{lane}" for lane in LANES)):
            app.control.cancel_consumer(lane)
    task = s.fleet.open("bench", "1 10 0")
    s.until(lambda: worker.gone, 40)
    assert worker.process.returncode == 1, "a supervisor starts it again"
    assert "consumes_nothing" in worker.text()
    assert s.one("SELECT count(*) FROM workers_alive") == 0, "it has said that it leaves"
    row = s.row(task)
    assert (row["status"], row["worker_id"]) == ("ready", None), "its task is left for the next"


def test_b16_long_steps_in_every_slot_are_no_silence(s: Stage) -> None:
    worker = s.worker(slots=1, canary="0.1", silence="2")
    task = s.fleet.open("notes", "long")
    s.until(lambda: s.asked("long") == 1)
    pause = time.monotonic() + 4
    s.until(lambda: worker.gone or time.monotonic() > pause)
    s.gate.set()
    s.until_done(task)
    assert not worker.gone
    assert (s.asked("long"), s.row(task)["fence"]) == (1, 1)


def test_b16_the_canary_is_silent_only_with_a_free_slot_and_after_the_time() -> None:
    canary = Canary(1, silence=0.0)
    assert not canary.silent(), "nothing was sent"
    canary.sent = time.monotonic() + 1
    with canary.heard():
        assert not canary.silent()
    canary.sent = canary.seen + 1
    time.sleep(0.001)
    assert canary.silent()


def test_b17_a_read_only_broker_stops_nothing_for_good(broken: Stage) -> None:
    worker = broken.worker(scripted=True)
    broken.until_done(broken.fleet.open("bench", "1 10 0"))
    broken.redis.replicaof("127.0.0.1", 1)
    began = time.monotonic()
    tasks = [broken.fleet.open("bench", "1 10 0") for _ in range(10)]
    assert broken.lanes.ring("steps", [(tasks[0], "x")]) == 0, "refused, and no error"
    assert time.monotonic() - began < 2, "the way in does not wait for the broker"
    broken.until(lambda: time.monotonic() - began > 5)
    assert broken.count("ready") == 10
    broken.redis.replicaof("NO", "ONE")
    broken.until(lambda: moved(broken) == 11, 30)
    assert not worker.gone, "no crash, so no loop of crashes"
    assert worker.text().count("Connection to broker lost") < 10, "it backs off"


def test_b17_a_publisher_keeps_no_connection_to_a_demoted_server(broken: Stage) -> None:
    assert broken.lanes.ring("steps", [("a", "x")]) == 1
    broken.redis.replicaof("127.0.0.1", 1)
    before = {each["id"] for each in broken.redis.client_list()}
    assert broken.lanes.ring("steps", [("b", "x")]) == 0
    broken.redis.replicaof("NO", "ONE")
    assert broken.lanes.ring("steps", [("c", "x")]) == 0, "quiet for a while: the sweeper rings"
    broken.until(lambda: broken.lanes.ring("steps", [("d", "x")]) == 1, 5)
    here = {each["id"] for each in broken.redis.client_list()}
    assert here - before, "a connection of its own, made after the change"


SECRET = "not a real secret"
RELEASE = ROOT / "tests/data/github/release-published.json"


@contextmanager
def webhooks(s: Stage) -> Iterator[TestClient]:
    """The public application as it is served, for the shipped agents."""
    settings = settings_of(
        s, agent_modules="agents", github_secrets=(SecretStr(SECRET),), broker_url=SecretStr(s.valkey.url)
    )
    with TestClient(web.public(settings)) as client:
        yield client


def moved(s: Stage) -> int:
    """How many tasks have come as far as a worker brings them before a person is asked."""
    return int(s.one("SELECT count(*) FROM agent_tasks WHERE status IN ('waiting', 'done')"))


def release(client: TestClient, number: int) -> Any:
    """A published release arrives."""
    delivery = json.loads(RELEASE.read_text())
    delivery["release"]["tag_name"] = f"v1.{number}"
    body = json.dumps(delivery).encode()
    return client.post("/hooks/github", content=body, headers={
        "X-GitHub-Delivery": f"d{number}", "X-GitHub-Event": "release", "Content-Type": "application/json",
        "X-Hub-Signature-256": sign(GITHUB, SECRET.encode(), body),
    })  # fmt: skip


def test_b18_a_broker_that_is_a_black_hole_delays_no_webhook(broken: Stage) -> None:
    worker = broken.worker(scripted=True, AGENT_MODULES="agents")
    with webhooks(broken) as client:
        assert release(client, 0).status_code == 200
        os.kill(broken.valkey.pid, signal.SIGSTOP)
        try:
            took = []
            for number in range(1, 11):
                began = time.monotonic()
                answer = release(client, number)
                took.append(time.monotonic() - began)
                assert answer.status_code == 200
                assert broken.row(answer.json()["task_id"])["status"] in ("ready", "waiting", "done")
            assert max(took) < 0.5, took
            assert broken.one("SELECT count(*) FROM arrivals WHERE state = 'accepted'") == 11
        finally:
            os.kill(broken.valkey.pid, signal.SIGCONT)
        broken.until(lambda: moved(broken) == 11, 30)
    assert not worker.gone


@pytest.mark.parametrize("policy", ["allkeys-lru"])
def test_b20_a_worker_does_not_start_on_a_broker_that_evicts(broken: Stage, policy: str) -> None:
    broken.redis.config_set("maxmemory-policy", policy)
    worker = broken.worker(ready=False, scripted=True)
    broken.until(lambda: worker.gone)
    assert worker.process.returncode == 1
    assert '"broker_evicts"' in worker.text() and policy in worker.text()
    assert "Set maxmemory-policy noeviction" in worker.text()
    assert broken.one("SELECT count(*) FROM workers_alive") == 0
    assert "Traceback" not in worker.text()


def test_b20_lost_bindings_stop_no_work_and_an_absent_broker_stops_no_start(broken: Stage) -> None:
    broken.valkey.stop()
    worker = broken.worker(scripted=True)
    broken.valkey.start()
    broken.until_done(broken.fleet.open("bench", "1 10 0"))
    bindings = list(broken.redis.scan_iter("_kombu.binding.*"))
    assert bindings
    broken.redis.delete(*bindings)
    broken.many(20, "1 10 0")
    broken.until(lambda: broken.count() == 21)
    assert not worker.gone


def test_b21_a_broker_without_memory_loses_no_arrival_and_no_step(broken: Stage) -> None:
    worker = broken.worker(scripted=True, AGENT_MODULES="agents", slots=4)
    window, longest, over = 2 * 4 + 1, 0, threading.Event()

    def watch() -> None:
        nonlocal longest
        while not over.is_set():
            longest = max(longest, broken.waiting())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        broken.redis.config_set("maxmemory", 1)
        with webhooks(broken) as client:
            assert {release(client, number).status_code for number in range(120)} == {200}
        assert broken.one("SELECT count(*) FROM arrivals WHERE state = 'accepted'") == 120
        assert moved(broken) == 0, "no doorbell got through"
        broken.redis.config_set("maxmemory", 0)
        broken.until(lambda: moved(broken) == 120, 60)
    finally:
        over.set()
        watcher.join()
    assert 0 < longest <= window
    assert not worker.gone
