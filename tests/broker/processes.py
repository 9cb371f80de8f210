"""A stage for tests of the broker: database, Valkey, a model, and worker processes that are always cleaned up."""

from __future__ import annotations

import importlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
import redis

from console.embedded import Valkey
from console.migrate import ROOT
from tests.fakes.loopback import until_true
from tests.fakes.openai_server import Answer, FakeOpenAI, tool_call
from tests.harness import Fleet, make_tables
from tests.kills.processes import FAST, SHIPPED, Worker
from workers.lanes import LANES, Lanes

__all__ = ["FAST", "SHIPPED", "Process", "Stage", "celery", "reach", "settings_of", "stage"]

COPY = """
WITH made AS (SELECT gen_random_uuid() AS id, n FROM generate_series(1, %(count)s) AS n),
rows AS (
    INSERT INTO arrivals (tenant, source, key, kind, task_id, state, payload, headers)
    SELECT %(tenant)s, a.source, a.key || '-' || m.n || %(tenant)s, a.kind, m.id, a.state, a.payload, a.headers
      FROM arrivals a, made m WHERE a.task_id = %(id)s)
INSERT INTO agent_tasks (id, tenant, agent, agent_version, code_floor, state, state_version, inbox_pending, lane)
SELECT m.id, %(tenant)s, t.agent, t.agent_version, t.code_floor,
       t.state || jsonb_build_object('id', m.id::text, 'tenant', %(tenant)s::text), t.state_version, 1, t.lane
  FROM agent_tasks t, made m WHERE t.id = %(id)s
"""


class Process(Worker):
    """A Celery worker process of ours on some lanes; without lanes it consumes nothing but its canary."""

    def __init__(self, environment: dict[str, str], queues: Sequence[str], slots: int) -> None:
        super().__init__(environment, ",".join(queues), slots)

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None


@dataclass
class Stage:
    """Servers, a hand on the database and on the lanes, and the workers on them. `open` gates the model of `notes`."""

    fleet: Fleet
    valkey: Valkey
    model: FakeOpenAI
    redis: redis.Redis
    database_url: str
    prefix: str = field(default_factory=lambda: f"b{uuid4().hex[:8]}")
    workers: list[Process] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def lanes(self) -> Lanes:
        """The lanes of this stage's workers."""
        return self.fleet.run.lanes

    def worker(
        self, *, lanes: Sequence[str] = LANES, slots: int = 8, scripted: bool = False, ready: bool = True,
        broker: str | None = None, **env: str,
    ) -> Process:  # fmt: skip
        """Start a worker; returns when its row stands in the database. `env` gets TWELVEFOLD_ in front.

        It beats and sweeps ten times faster than shipped, and is dead after 4 s: a busy machine kills nobody.
        """
        environment = {
            **os.environ, **FAST, "TWELVEFOLD_DEAD_AFTER": "4",
            "DATABASE_URL": self.database_url, "BROKER_URL": broker or self.valkey.url,
            "AGENT_MODULES": "tests.agents", "TWELVEFOLD_LANE_PREFIX": self.prefix, "PYTHONPATH": str(ROOT),
            **({} if scripted else {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": self.model.base_url}),
            **{f"TWELVEFOLD_{name.upper()}": value for name, value in env.items() if name.islower()},
            **{name: value for name, value in env.items() if name.isupper()},
        }  # fmt: skip
        made = Process(environment, [f"{self.prefix}.{lane}" for lane in lanes], slots)
        self.workers.append(made)
        if ready:
            self.until_up(made)
        return made

    def until_up(self, *workers: Process) -> None:
        """Wait until the rows of these workers stand in the database."""
        for worker in workers:
            self.until(lambda pid=worker.process.pid: self.up(pid))  # type: ignore[misc]

    def up(self, pid: int) -> bool:
        """Whether the process has its row."""
        return bool(self.one("SELECT 1 FROM workers_alive WHERE pid = %(pid)s", pid=pid))

    def one(self, sql: Any, **names: Any) -> Any:
        """The first column of the first row."""
        return self.fleet.one(sql, **names)

    def row(self, task: str) -> dict[str, Any]:
        """The task row."""
        return self.fleet.row(task)

    def count(self, status: str = "done") -> int:
        """How many tasks have this status."""
        return int(self.one("SELECT count(*) FROM agent_tasks WHERE status = %(status)s", status=status))

    def many(self, count: int, text: str = "0 0 0", *, tenant: str = "t1") -> None:
        """Open so many tasks of `bench`, which take one step each when they shall look zero times."""
        template = self.fleet.open("bench", text, tenant)
        with self.fleet.run.db.transaction() as connection:
            connection.execute(COPY, {"id": template, "count": count - 1, "tenant": tenant})

    def until(self, condition: Callable[[], bool], timeout: float = 30) -> None:
        """Wait until it is true; shows the workers' logs when it does not come true."""
        try:
            until_true(condition, timeout)
        except BaseException:
            for worker in self.workers:
                print(f"--- worker {worker.process.pid}, exit code {worker.process.poll()}\n{worker.text()[-3000:]}")
            raise

    def until_done(self, *tasks: str, timeout: float = 30) -> None:
        """Wait until these tasks are done."""
        for task in tasks:
            self.until(lambda task=task: self.row(task)["status"] == "done", timeout)  # type: ignore[misc]

    def rung(self, task: str) -> None:
        """Make the sweeper believe that somebody was told of the task a moment ago."""
        with self.fleet.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET nudged_at = clock_timestamp() WHERE id = %s", (task,))

    def push(self, task: str, copies: int = 1, lane: str = "steps") -> None:
        """Push copies of a doorbell in one command, whatever the window says."""
        self.redis.lpush(f"{self.prefix}.{lane}", *(self.lanes._message(lane, task, "a copy") for _ in range(copies)))

    def waiting(self, lane: str = "steps") -> int:
        """How many messages stand in the lane."""
        return int(self.redis.llen(f"{self.prefix}.{lane}"))

    def asked(self, word: str) -> int:
        """How many model calls had this word in their window."""
        return sum(word in json.dumps(seen.body["messages"]) for seen in self.model.requests)

    def decide(self, request: dict[str, Any]) -> Answer:
        """The model of `notes`: a message with `long` waits for the gate; `note N` keeps a note before it is done."""
        seen = str(request["messages"][-1]["content"])
        if "long" in seen:
            self.gate.wait(60)
        if "keep" in seen and "<returned" not in seen:
            return tool_call("keep_note", {"text": "kept"})
        return tool_call("done", {"outcome": {"text": "done"}})


@contextmanager
def stage(database: Any, valkey: Valkey) -> Iterator[Stage]:
    """Everything but the workers; those that a test starts are gone at the end."""
    make_tables(database.owner)
    with ExitStack() as stack:
        model = stack.enter_context(FakeOpenAI())
        client = stack.enter_context(redis.Redis.from_url(valkey.url, socket_timeout=10))
        fleet = Fleet(database.app, lambda task: None, broker=valkey.url)  # type: ignore[arg-type, return-value]
        stack.callback(fleet.close)
        made = Stage(fleet, valkey, model, client, database.app)
        fleet.run.lanes.prefix = made.prefix
        model.script(made.decide)
        try:
            yield made
        finally:
            made.gate.set()
            for worker in made.workers:
                worker.close()


@cache
def reach(name: str) -> Any:
    """A module of the shell that reads the environment at import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
        patch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")
        return importlib.import_module(name)


def settings_of(s: Stage, **change: Any) -> Any:
    """The settings of this stage's workers, as far as the broker is concerned."""
    return s.fleet.settings.model_copy(update={"lane_prefix": s.prefix, **change})


@contextmanager
def celery(s: Stage) -> Iterator[Any]:
    """Our Celery application on this stage's broker, for operators' commands and for comparison."""
    app = reach("workers.app").make(settings_of(s))
    try:
        yield app
    finally:
        app.close()
