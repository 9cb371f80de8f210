"""Webhooks over real HTTP, into a process of its own: none is lost, none is doubled, and how long an answer takes."""

from __future__ import annotations

import hmac
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from threading import local
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest

from console.embedded import Valkey, free_port
from console.migrate import ROOT
from tests.fakes.loopback import until_true
from tests.harness import NO_BROKER
from tests.proxy import Proxy

SECRET = "a secret of this test"
RELEASE = (ROOT / "tests/data/github/release-published.json").read_bytes()
SENDERS = 32
UNTOLD = ("Codertocat", "Hello-World", "ann@example.com")
"""What the deliveries say; no line of the log may."""


@contextmanager
def serving(database: str, broker: str, **more: str) -> Iterator[int]:
    """The public application as a process of its own; its port."""
    port = free_port()
    environment = {
        **os.environ, "DATABASE_URL": database, "BROKER_URL": broker, "GITHUB_WEBHOOK_SECRETS": SECRET,
        "PYTHONPATH": str(ROOT), **more,
    }  # fmt: skip
    argv = [sys.executable, "-m", "console.cli", "http", "--port", str(port), "--only", "public"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            until_true(lambda: _answers(process, port), 60)
            yield port
        finally:
            process.terminate()
            process.wait(30)
        log.seek(0)
        said = log.read()
    assert not [word for word in (SECRET, "sha256=", *UNTOLD, *more.values()) if word.encode() in said], said


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "it has ended"
    try:
        with urlopen(f"http://127.0.0.1:{port}/livez", timeout=5):
            return True
    except OSError:
        return False


class Sender:
    """Posts signed releases, each thread over a connection of its own that it keeps."""

    def __init__(self, port: int) -> None:
        self._port, self._mine = port, local()
        self._lines: list[HTTPConnection] = []

    def post(self, key: str) -> tuple[str, int, dict[str, Any], float]:
        """Deliver it: key, status, verdict, and how many seconds the answer took."""
        headers = {
            "Content-Type": "application/json", "X-GitHub-Event": "release", "X-GitHub-Delivery": key,
            "X-Hub-Signature-256": "sha256=" + hmac.digest(SECRET.encode(), RELEASE, "sha256").hex(),
        }  # fmt: skip
        if not hasattr(self._mine, "line"):
            self._mine.line = HTTPConnection("127.0.0.1", self._port, timeout=60)
            self._lines.append(self._mine.line)
        begun = monotonic()
        self._mine.line.request("POST", "/hooks/github", RELEASE, headers)
        answer = self._mine.line.getresponse()
        verdict = json.loads(answer.read())
        return key, answer.status, verdict, monotonic() - begun

    def hang_up(self) -> None:
        """Close this thread's connection; the next delivery opens another."""
        self._mine.line.close()

    def close(self) -> None:
        """Close every connection."""
        for line in self._lines:
            line.close()


def a_load(deliveries: int, share: float) -> list[str]:
    """Keys in the order of sending; `share` of them repeat one of the ten before, often while it is under way."""
    dice, keys = random.Random(12), list[str]()
    for n in range(deliveries):
        repeat = bool(keys) and sum(count - 1 for count in Counter(keys).values()) < n * share
        keys.append(dice.choice(keys[-10:]) if repeat else f"delivery-{n}")
    return keys


def bombard(port: int, keys: list[str], a_second: int) -> list[tuple[str, int, dict[str, Any], float]]:
    """Send them at this pace, whether or not the earlier ones are answered."""
    with closing(Sender(port)) as sender, ThreadPoolExecutor(SENDERS) as threads:
        begun, under_way = monotonic(), []
        for n, key in enumerate(keys):
            sleep(max(0.0, begun + n / a_second - monotonic()))
            under_way.append(threads.submit(sender.post, key))
        return [each.result() for each in under_way]


def judge(database: Any, keys: list[str], answers: list[tuple[str, int, dict[str, Any], float]]) -> float:
    """Nothing lost, nothing doubled, every answer true; the 99th percentile of the answers in milliseconds."""
    assert Counter(status for _, status, _, _ in answers) == {200: len(keys)}
    outcomes = Counter((key, verdict["outcome"]) for key, _, verdict, _ in answers)
    sent = Counter(keys)
    assert outcomes == Counter({(key, "accepted"): 1 for key in sent}) + Counter(
        {(key, "duplicate"): times - 1 for key, times in sent.items()}
    )
    told = {(key, verdict["task_id"]) for key, _, verdict, _ in answers}
    with psycopg.connect(database.app.replace("+psycopg", "")) as connection:
        rows = connection.execute("SELECT key, task_id::text FROM arrivals WHERE state = 'accepted'").fetchall()
        tasks = connection.execute("SELECT id::text FROM agent_tasks WHERE inbox_pending = 1").fetchall()
        both = "SELECT (SELECT count(*) FROM arrivals), (SELECT count(*) FROM agent_tasks)"
        assert connection.execute(both).fetchone() == (len(sent), len(sent))
    assert set(rows) == told, "every answer, to a repeat too, names the one task that stands there"
    assert {task for (task,) in tasks} == {task for _, task in told}
    times = sorted(seconds for _, _, _, seconds in answers)
    return 1000 * times[int(len(times) * 0.99) - 1]


def test_a_hundred_deliveries_a_second_with_repeats_are_stored_once_each_with_the_broker_down(
    fresh_database: Any,
) -> None:
    keys = a_load(100, 0.2)
    with serving(fresh_database.app, NO_BROKER) as port:
        judge(fresh_database, keys, bombard(port, keys, 100))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", ["up", "down"])
def test_two_thousand_deliveries_at_a_hundred_a_second(
    fresh_database: Any, valkey: Valkey, broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    valkey.start()
    keys = a_load(2000, 0.2)
    assert len(set(keys)) == 1600
    with serving(fresh_database.app, valkey.url if broker == "up" else NO_BROKER) as port:
        answers = bombard(port, keys, 100)
    p99 = judge(fresh_database, keys, answers)
    with capsys.disabled():
        slowest = 1000 * max(seconds for *_, seconds in answers)
        print(f"\n2,000 deliveries at 100/s, broker {broker}: p99 {p99:.0f} ms, slowest {slowest:.0f} ms")


def test_the_example_in_the_documentation_is_taken_as_it_stands(fresh_database: Any) -> None:
    text = (ROOT / "docs/webhooks.md").read_text()
    shell, python = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("sh", "python"))
    given = dict(re.findall(r"export (\w+)='([^']*)'", shell[0]))
    with serving(fresh_database.app, NO_BROKER, **given) as port:
        argv = [sys.executable, "-c", python[0]]
        environment = {**os.environ, **given, "TWELVEFOLD_ADDRESS": f"http://127.0.0.1:{port}"}
        said = [subprocess.run(argv, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    printed = re.findall(r'`(\{"outcome".*?\})`', text)
    assert said[0].stdout.strip() == printed[0]
    assert json.loads(said[1].stdout)["outcome"] == "duplicate"
    with psycopg.connect(fresh_database.app.replace("+psycopg", "")) as connection:
        sql = "SELECT source, key, type, sender, conversation, proof, tenant FROM arrivals"
        rows = connection.execute(sql).fetchall()
    assert rows == [("shop", "evt-1", "order.paid", "ann@example.com", "o-7", "hmac:generic#0", "default")]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_five_thousand_deliveries_at_two_hundred_a_second_by_a_slow_database_and_no_broker_for_half_of_it(
    fresh_database: Any, postgres: Any, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is told to come again is sent again, as its sender would; what was taken is there once."""
    valkey.start()
    keys = a_load(5000, 0.2)
    assert len(set(keys)) == 4000
    with Proxy(postgres.socket) as slow, serving(slow.url(fresh_database.app), valkey.url) as port:
        begun = monotonic()
        with closing(Sender(port)) as sender, ThreadPoolExecutor(200) as threads:
            under_way = []
            for n, key in enumerate(keys):
                if n == len(keys) // 4:
                    slow.lag = 0.2
                    valkey.stop()
                if n == 3 * len(keys) // 4:
                    slow.lag = 0.0
                    valkey.start()
                sleep(max(0.0, begun + n / 200 - monotonic()))
                under_way.append(threads.submit(until_taken, sender, key))
            sent = monotonic() - begun
            found = [each.result() for each in under_way]
        took = monotonic() - begun
    again = sum(attempts - 1 for _, attempts in found)
    answers = [answer for answer, _ in found]
    assert {status for _, status, _, _ in answers} == {200}
    told = {(key, verdict["task_id"]) for key, _, verdict, _ in answers}
    with psycopg.connect(fresh_database.app.replace("+psycopg", "")) as connection:
        rows = connection.execute("SELECT key, task_id::text FROM arrivals WHERE state = 'accepted'").fetchall()
        both = "SELECT (SELECT count(*) FROM arrivals), (SELECT count(*) FROM agent_tasks)"
        assert connection.execute(both).fetchone() == (4000, 4000), "none is lost, none is doubled"
    assert set(rows) == told and {key for key, _ in rows} == set(keys)
    with capsys.disabled():
        pace = f"sent in {sent:.0f} s, all taken after {took:.0f} s, {again} sent again"
        print(f"\n5,000 deliveries: {pace}")


def until_taken(sender: Sender, key: str) -> tuple[tuple[str, int, dict[str, Any], float], int]:
    """The answer that took it, and how many attempts that was; one that no answer came to is made again too."""
    for attempt in range(1, 200):
        try:
            answer = sender.post(key)
        except OSError:
            sender.hang_up()
            continue
        if answer[1] != 503:
            return answer, attempt
        sleep(1 + 0.02 * (attempt % 50))
    raise AssertionError(f"{key} was never taken")
