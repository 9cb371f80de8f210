"""Real worker processes for tests that kill them: started, found in the database, killed, and always cleaned up."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from console.embedded import Valkey
from console.migrate import ROOT
from tests.fakes.http_service import Begun, FakeService
from tests.fakes.loopback import until_true
from tests.fakes.openai_server import Answer, FakeOpenAI, tool_call
from tests.harness import Fleet, make_tables
from tests.kills.nursery import nursery

FAST = {
    "TWELVEFOLD_HEARTBEAT": "0.2",
    "TWELVEFOLD_DEAD_AFTER": "1.6",
    "TWELVEFOLD_SWEEP": "0.1",
    "TWELVEFOLD_RENUDGE": "0.5",
}
"""Faster than shipped, five to ten times; figures of recovery never use it."""
SHIPPED = {
    "TWELVEFOLD_HEARTBEAT": "2",
    "TWELVEFOLD_DEAD_AFTER": "8",
    "TWELVEFOLD_SWEEP": "1",
    "TWELVEFOLD_RENUDGE": "5",
}
LANES = ("steps", "answers", "delivery")


class Worker:
    """One Celery worker process of ours."""

    def __init__(self, environment: dict[str, str], queues: str, slots: int) -> None:
        self.log = Path(tempfile.mkstemp(prefix="worker-", suffix=".log")[1])
        argv = [
            "-A", "workers.tasks", "worker", "-P", "threads", "-c", str(slots), "-Q", queues,
            "-n", f"{uuid4().hex}@%h", "--without-gossip", "--without-mingle", "-l", "WARNING",
        ]  # fmt: skip
        self.process = nursery().start(argv, environment, self.log)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.process.kill()
        self.process.wait()

    def said(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self.log.read_text(errors="replace")

    def close(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self.log.unlink(missing_ok=True)


@dataclass
class World:
    """A database, a broker, a model and a service, and the workers on them."""

    fleet: Fleet
    valkey: Valkey
    model: FakeOpenAI
    service: FakeService
    app_url: str
    prefix: str = field(default_factory=lambda: f"k{uuid4().hex[:8]}")
    workers: list[Worker] = field(default_factory=list)

    def worker(
        self, *, database: str | None = None, slots: int = 8, ready: bool = True, env: dict[str, str] | None = None,
        lanes: Sequence[str] = LANES,
    ) -> Worker:  # fmt: skip
        """Start a worker; returns when its row stands in the database. `database` may lead through a proxy."""
        environment = {
            **os.environ, **FAST, "DATABASE_URL": database or self.app_url, "BROKER_URL": self.valkey.url,
            "AGENT_MODULES": "tests.agents", "TWELVEFOLD_LANE_PREFIX": self.prefix, "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": self.model.base_url, **(env or {}),
        }  # fmt: skip
        made = Worker(environment, ",".join(f"{self.prefix}.{lane}" for lane in lanes), slots)
        self.workers.append(made)
        if ready:
            pid = made.process.pid
            until_true(lambda: bool(self.one("SELECT 1 FROM workers_alive WHERE pid = %(pid)s", pid=pid)), 30)
        return made

    def one(self, sql: Any, **names: Any) -> Any:
        """The first column of the first row."""
        return self.fleet.one(sql, **names)

    def status(self, task: str) -> str:
        """The task's status and what it waits for."""
        row = self.fleet.row(task)
        return f"{row['status']}/{row['waiting_for']}" if row["waiting_for"] else str(row["status"])

    def until(self, condition: Callable[[], bool], timeout: float = 30) -> None:
        """Wait until it is true; shows the workers' logs when it does not come true."""
        try:
            until_true(condition, timeout)
        except BaseException:
            for worker in self.workers[-4:]:
                print(worker.process.pid, worker.log.read_text(errors="replace")[-1500:])
            raise

    def until_status(self, task: str, status: str, timeout: float = 30) -> None:
        """Wait until the task has come to this status."""
        self.until(lambda: self.status(task) == status, timeout)

    def pay(self, tool: str = "pay", order: str = "ord_1", amount: str = "5") -> str:
        """Open a refund task whose model will call this tool once and then be done."""
        return self.fleet.open("refunds", f"{tool} {order} {amount} {self.port}")

    def posts(self) -> list[Begun]:
        """The effects that arrived at the service, however they ended."""
        return [request for request in self.service.begun if request.method == "POST"]

    @property
    def port(self) -> int:
        """Where the service listens."""
        return int(self.service.url.rsplit(":", 1)[1].split("/")[0])


def decide(request: dict[str, Any]) -> Answer:
    """The model of the refund tasks: pay what the message says, once; then be done."""
    seen = request["messages"][-1]["content"]
    words = seen.split("text: ", 1)[1].split("\n")[0].strip().strip('"').split()
    if "<returned" in seen or 'state="not"' in seen:
        return tool_call("done", {"outcome": {"text": "paid"}})
    if words[0] == "keep_note":
        return tool_call("keep_note", {"text": " ".join(words[1:])})
    return tool_call(words[0], {"order_id": words[1], "amount": words[2], "port": int(words[3])})


@contextmanager
def world(database: Any, valkey: Valkey) -> Iterator[World]:
    """Everything but the workers; those that a test starts are gone at the end."""
    make_tables(database.owner)
    with ExitStack() as stack:
        model = stack.enter_context(FakeOpenAI())
        service = stack.enter_context(FakeService())
        fleet = Fleet(database.app, lambda task: None, broker=valkey.url)  # type: ignore[arg-type, return-value]
        stack.callback(fleet.close)
        model.script(decide)
        made = World(fleet, valkey, model, service, database.app)
        try:
            yield made
        finally:
            service.release()
            model.release()
            for worker in made.workers:
                worker.close()
