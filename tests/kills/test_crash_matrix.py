"""The crash matrix, every row with real processes: held at a fake model, a fake service or a proxy, then killed."""

from __future__ import annotations

import hmac
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

import pytest

from console.embedded import Postgres, Valkey, free_port
from console.migrate import ROOT
from tests.kills.processes import SHIPPED, World, world
from tests.proxy import Proxy
from twelvefold.events import ModelAsked, Settled, Started

SECRET = "a secret of this test"
pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]


@pytest.fixture
def w(fresh_database: Any, valkey: Valkey) -> Iterator[World]:
    """A world without workers."""
    valkey.start()
    with world(fresh_database, valkey) as made:
        yield made


def paid_once(w: World, task: str, *, sent: int = 1) -> None:
    """The service did it once, our row is there once, and the task says so."""
    assert len(w.service.effects) == 1
    assert len(w.posts()) == sent
    assert w.one("SELECT count(*) FROM refunds") == 1
    assert w.fleet.kinds(task).count("Returned") == 1


def serve(w: World, database: str, port: int) -> subprocess.Popen[bytes]:
    """Our web application as a process of its own."""
    environment = {
        **os.environ, "DATABASE_URL": database, "BROKER_URL": w.valkey.url, "GITHUB_WEBHOOK_SECRETS": SECRET,
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    argv = [sys.executable, "-m", "console.cli", "http", "--port", str(port)]
    made = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/livez", timeout=1):
                return True
        except OSError:
            return False

    w.until(answers)
    return made


def deliver(port: int) -> dict[str, Any]:
    """One signed delivery, always with the same key."""
    body = (ROOT / "tests/data/github/release-published.json").read_bytes()
    headers = {
        "Content-Type": "application/json", "X-GitHub-Event": "release", "X-GitHub-Delivery": "delivery-1",
        "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest(),
    }  # fmt: skip
    with urlopen(Request(f"http://127.0.0.1:{port}/hooks/github", body, headers), timeout=20) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def test_killed_while_accepting_an_arrival_nothing_is_stored_and_the_retry_is_accepted(
    w: World, postgres: Postgres
) -> None:
    port = free_port()
    with Proxy(postgres.socket) as proxy, ThreadPoolExecutor(1) as sender:
        rule = proxy.hold_next(b"INSERT INTO agent_tasks")
        first = serve(w, proxy.url(w.app_url), port)
        lost = sender.submit(deliver, port)
        rule.wait(30)
        first.kill()
        first.wait()
        with pytest.raises((OSError, HTTPException)):
            lost.result(30)
    stored = "SELECT (SELECT count(*) FROM arrivals) + (SELECT count(*) FROM agent_tasks)"
    assert w.one(stored) == 0
    second = serve(w, w.app_url, port)
    try:
        assert deliver(port)["outcome"] == "accepted"
        assert deliver(port)["outcome"] == "duplicate"
        assert w.one(stored) == 2
    finally:
        second.kill()
        second.wait()


def test_killed_before_the_claim_it_is_rung_again(w: World, postgres: Postgres) -> None:
    with Proxy(postgres.socket) as proxy:
        rule = proxy.hold_next(b"SET worker_id = ")
        first = w.worker(database=proxy.url(w.app_url))
        task = w.pay()
        rule.wait(30)  # the doorbell is gone from the lane, and the claim is on its way
        first.kill()
    assert w.fleet.row(task)["fence"] == 0
    w.worker()
    w.until_status(task, "done")
    paid_once(w, task)


def test_killed_after_the_claim_and_before_begin_it_is_performed_once(w: World, postgres: Postgres) -> None:
    with Proxy(postgres.socket) as proxy:
        rule = proxy.hold_next(b"pg_advisory_xact_lock_shared")
        first = w.worker(database=proxy.url(w.app_url))
        task = w.pay()
        rule.wait(30)
        first.kill()
        assert w.service.begun == []
        w.worker()
        w.until_status(task, "done")
    paid_once(w, task)
    assert w.fleet.kinds(task).count("Started") == 1


def test_killed_during_the_model_call_it_is_asked_again_and_recorded_once(w: World) -> None:
    w.model.hold()
    first = w.worker()
    task = w.pay()
    w.model.waiting(1, 30)
    first.kill()
    w.worker()
    w.model.waiting(2, 30)
    w.model.release()
    w.until_status(task, "done")
    asked = [event for event in w.fleet.events(task) if isinstance(event, ModelAsked)]
    assert [event.lost for event in asked] == [1, 0], "the estimate of the lost call is charged"
    assert asked[0].spent.tokens_in > asked[1].spent.tokens_in
    paid_once(w, task)


@pytest.mark.parametrize(
    ("tool", "comes_to", "sent"), [("pay", "waiting/settle", 1), ("pay_again", "done", 2), ("pay_and_look", "done", 1)]
)
def test_killed_after_begin_and_before_the_commit_it_is_in_doubt(w: World, tool: str, comes_to: str, sent: int) -> None:
    w.service.hold_after()
    first = w.worker()
    task = w.pay(tool)
    w.service.waiting(1, 30)
    first.kill()
    w.service.release()
    w.worker()
    w.until_status(task, comes_to)
    assert "Doubted" in w.fleet.kinds(task)
    if tool == "pay":
        call = w.fleet.state(task).call
        assert call is not None and w.one("SELECT count(*) FROM refunds") == 0
        w.fleet.operate.settle(task, call.seq, how="happened", by="me", result={"key": call.key, "amount": "5"})
        w.until_status(task, "done")
    keys = {event.key for event in w.fleet.events(task) if isinstance(event, Started)}
    assert len(keys) == 1, "every attempt has the key of the first"
    if tool == "pay_and_look":
        assert [e.by for e in w.fleet.events(task) if isinstance(e, Settled)] == ["find"]
    paid_once(w, task, sent=sent)


def test_killed_with_the_commit_on_its_way_there_nothing_of_the_step_exists(w: World, postgres: Postgres) -> None:
    with Proxy(postgres.socket) as proxy:
        rule = proxy.hold_next(b"INSERT INTO agent_events")
        first = w.worker(database=proxy.url(w.app_url))
        task = w.pay()
        rule.wait(30)
        first.kill()
        assert w.fleet.kinds(task) == []
    w.worker()
    w.until_status(task, "done")
    assert len(w.model.requests) == 3, "asked again for the lost decision, once for the next"
    paid_once(w, task)


def test_killed_before_the_answer_of_the_commit_the_step_stands_whole(w: World, postgres: Postgres) -> None:
    with Proxy(postgres.socket) as proxy:
        first = w.worker(database=proxy.url(w.app_url))
        w.model.hold()
        task = w.pay()
        w.model.waiting(1, 30)
        rule = proxy.hold_next(b"ready", "to_client")
        w.model.release()
        rule.wait(30)
        first.kill()
        assert w.fleet.kinds(task) == ["Arrived", "ModelAsked", "Decided"]
    w.worker()
    w.until_status(task, "done")
    assert len(w.model.requests) == 2, "nobody asked again for a decision that stood"
    paid_once(w, task)


def test_killed_after_the_commit_and_before_the_doorbell_it_is_swept(w: World, valkey: Valkey) -> None:
    w.model.hold()
    first = w.worker()
    task = w.pay()
    w.model.waiting(1, 30)
    valkey.stop()
    w.model.release()
    w.until(lambda: "Decided" in w.fleet.kinds(task))
    first.kill()
    valkey.start()
    w.worker()
    w.until_status(task, "done")
    paid_once(w, task)


def test_redis_flushed_restarted_and_gone_loses_nothing(w: World, valkey: Valkey) -> None:
    w.worker()
    tasks = [w.pay("pay_again", f"ord_{n}") for n in range(6)]
    w.until(lambda: len(w.posts()) >= 2)
    valkey.flush()
    w.until(lambda: len(w.posts()) >= 4)
    valkey.restart(down_for=2)
    tasks += [w.pay("pay_again", f"ord_{n}") for n in range(6, 9)]
    valkey.kill()
    late = w.pay("pay_again", "ord_9")
    valkey.start()
    for task in [*tasks, late]:
        w.until_status(task, "done", 90)
    assert len(w.service.effects) == 10
    assert w.one("SELECT count(*) FROM refunds") == 10


@pytest.mark.long
def test_postgresql_away_for_twelve_seconds_frees_no_claim_and_repeats_no_call(w: World, postgres: Postgres) -> None:
    w.worker(env=SHIPPED)
    w.model.hold()
    tasks = [w.fleet.open("notes", f"keep_note number {n}") for n in range(4)]
    w.model.waiting(4, 30)
    before = {task: w.fleet.row(task)["fence"] for task in tasks}
    postgres.stop()
    w.model.release()
    postgres.restart(down_for=12)
    for task in tasks:
        w.until_status(task, "done", 90)
    assert len(w.model.requests) == 8, "two decisions for each task, none of them twice"
    assert {w.fleet.row(task)["fence"] - before[task] for task in tasks} == {2}, "no claim was freed and taken again"
    assert w.one("SELECT count(*) FROM notes") == 4


def test_a_stopped_worker_that_wakes_after_another_finished_changes_nothing(w: World) -> None:
    w.service.hold()
    first = w.worker()
    task = w.pay("pay_again")
    w.service.waiting(1, 30)
    first.send(signal.SIGSTOP)
    w.worker()
    w.service.waiting(2, 30)
    w.service.release()
    w.until_status(task, "done")
    row, kinds = w.fleet.row(task), w.fleet.kinds(task)
    first.send(signal.SIGCONT)
    w.until(lambda: first.said('"stale"'))
    assert (w.fleet.row(task), w.fleet.kinds(task)) == (row, kinds)
    paid_once(w, task, sent=2)
