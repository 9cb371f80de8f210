"""What a doorbell looks like, what a worker takes, and what stays behind in the broker."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from workers.lanes import Lanes

from .processes import Stage, celery, reach

pytestmark = pytest.mark.timeout(120)


def unpacked(raw: Any) -> tuple[dict[str, Any], Any]:
    """A stored message and its body."""
    message = json.loads(raw)
    return message, json.loads(base64.b64decode(message.pop("body")))


def test_a_doorbell_equals_what_celery_itself_would_have_stored(s: Stage) -> None:
    lane, task = f"{s.prefix}.steps", "0198c0de-0000-7000-8000-000000000001"
    with celery(s) as app:
        app.send_task("twelvefold.step", args=[task], ignore_result=True)  # as the task itself says
        theirs, their_body = unpacked(s.redis.rpop(lane))
        assert s.lanes.ring("steps", [(task, "what to show")]) == 1
        ours, our_body = unpacked(s.redis.rpop(lane))
    assert our_body == their_body == [[task], {}, our_body[2]]
    assert ours.keys() == theirs.keys()
    assert ours["headers"].keys() == theirs["headers"].keys()
    assert ours["properties"].keys() == theirs["properties"].keys()
    for one in (ours, theirs):
        one["headers"].pop("argsrepr"), one["headers"].pop("kwargsrepr")  # ours are for operators to read
        assert one["headers"].pop("id") == one["headers"].pop("root_id") == one["properties"].pop("correlation_id")
        one["properties"].pop("delivery_tag")
        one["properties"].pop("reply_to")
        assert one["headers"].pop("origin").count("@") == 1
    assert ours == theirs


def test_a_window_is_strict_under_eight_pushers(s: Stage) -> None:
    barrier, pushed, seen = threading.Barrier(8), [], []

    def pushes(number: int) -> None:
        lanes = Lanes(s.valkey.url, s.prefix)
        lanes.windows["steps"] = 17
        barrier.wait()
        for bell in range(20):
            pushed.append(lanes.ring("steps", [(f"{number}-{bell}-{n}", "x") for n in range(3)]))
            seen.append(lanes.length("steps"))
        lanes.close()

    threads = [threading.Thread(target=pushes, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(pushed) == 17 == s.waiting()
    assert max(n for n in seen if n is not None) <= 17


def test_b09_a_doorbell_of_unknown_name_is_logged_and_its_task_done_all_the_same(standing: Stage) -> None:
    task = standing.fleet.open("bench", "1 10 0")
    standing.rung(task)
    name = "twelvefold.step.v9"
    standing.redis.lpush(f"{standing.prefix}.steps", standing.lanes._message("steps", task, "from tomorrow", task=name))
    standing.until(
        lambda: any(name in worker.text() and "unregistered" in worker.text() for worker in standing.workers)
    )
    standing.until_done(task)
    assert not any(worker.gone for worker in standing.workers)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Path]:
    """A file that must not come to be."""
    yield tmp_path / "executed"


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_b25_a_pickle_is_rejected_and_not_executed(standing: Stage, witness: Path) -> None:
    message = json.loads(standing.lanes._message("steps", "0198c0de-0000-7000-8000-000000000002", "evil"))
    message["content-type"], message["content-encoding"] = "application/x-python-serialize", "binary"
    message["body"] = base64.b64encode(pickle.dumps([[Bomb(witness)], {}, {}])).decode()
    standing.redis.lpush(f"{standing.prefix}.steps", json.dumps(message))
    standing.until(lambda: any("ContentDisallowed" in worker.text() for worker in standing.workers))
    task = standing.fleet.open("bench", "1 10 0")
    standing.until_done(task)
    assert not witness.exists()
    assert not any(worker.gone for worker in standing.workers)


def test_b25_the_embedded_broker_wants_a_password_and_listens_on_loopback_only(standing: Stage) -> None:
    stranger = redis.Redis(port=standing.valkey.port)
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.replicaof("203.0.113.9", 6379)
    listening = [
        each.laddr.ip
        for each in psutil.Process(standing.valkey.pid).net_connections()
        if each.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_b26_inspect_ping_is_answered_by_every_worker(standing: Stage) -> None:
    with celery(standing) as app:
        answers = app.control.ping(timeout=2)
    assert len(answers) == 2
    assert all(answer == {"ok": "pong"} for each in answers for answer in each.values())


def test_b12_fifty_copies_of_a_doorbell_make_one_step(standing: Stage) -> None:
    for _ in range(3):
        task = standing.fleet.open("mortal", "live")
        standing.rung(task)
        standing.push(task, copies=50)
        standing.until_done(task)
        standing.until(lambda: standing.waiting() == 0)
        row = standing.row(task)
        assert (row["fence"], row["current_step"]) == (1, 1)
        assert standing.fleet.kinds(task).count("Decided") == 1
        assert standing.one("SELECT count(*) FROM outbox WHERE task_id = %(id)s", id=task) == 1
    with celery(standing) as app:
        answers = app.control.inspect(timeout=2).stats()
    counts = [each["total"].get("twelvefold.step", 0) for each in answers.values()]
    assert len(counts) == 2 and all(counts) and sum(counts) >= 150, "they came to both, and did nothing"


def test_b24_every_socket_option_is_set_explicitly() -> None:
    options = reach("workers.app").app.conf.broker_transport_options
    lanes = Lanes("redis://127.0.0.1:1/0", "b24")
    ours = lanes.client.connection_pool.connection_kwargs
    for name in ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "health_check_interval"):
        assert options[name] and ours[name], name
    assert options["socket_timeout"] > options["health_check_interval"], "an idle read must not look like a dead peer"
    lanes.close()


def test_b24_an_idle_worker_neither_reconnects_nor_falls_asleep(standing: Stage) -> None:
    standing.lanes.client.connection_pool.connection_kwargs["health_check_interval"] = 1
    task = standing.fleet.open("bench", "0 0 0")
    standing.until_done(task)

    def connections() -> int:
        return int(standing.redis.info("stats")["total_connections_received"])

    before, until = connections(), time.monotonic() + 5
    standing.until(lambda: time.monotonic() > until)
    assert connections() - before < 3
    began = time.monotonic()
    standing.until_done(standing.fleet.open("bench", "0 0 0"))
    assert time.monotonic() - began < 2
    assert standing.lanes.length("steps") is not None
    assert connections() - before < 3
    assert not any("Connection to broker lost" in worker.text() for worker in standing.workers)


def keys_stay(s: Stage, tasks: int, looks: int, pings: int, timeout: float) -> None:
    """Many steps and many pings leave nothing behind in the broker."""
    before = s.count()
    s.many(tasks, f"{looks} 10 0")
    with celery(s) as app:
        for _ in range(pings):
            app.control.ping(timeout=0.01)
    s.until(lambda: s.count() - before == tasks, timeout)
    assert s.one("SELECT sum(current_step) FROM agent_tasks") >= tasks * (2 * looks + 1)
    keys = [key.decode() for key in s.redis.scan_iter(count=1000)]
    others = [key for key in keys if not key.startswith(s.prefix)]
    assert len(others) < 200, others[:20]
    assert not [key for key in keys if "celery-task-meta" in key], "no result backend"


def test_b22_thousands_of_steps_leave_few_keys_behind(standing: Stage) -> None:
    keys_stay(standing, tasks=96, looks=10, pings=30, timeout=60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_twenty_thousand_steps_leave_few_keys_behind(standing: Stage) -> None:
    keys_stay(standing, tasks=953, looks=10, pings=500, timeout=500)
