"""What is measured. Each function gives figures; `__main__` holds them against the targets."""

from __future__ import annotations

import base64
import json
import statistics
import time
from dataclasses import dataclass
from uuid import uuid4

from tests.agents.bench.script import script

from .machine import Machine, cpu_of, until

QUEUE = "bare"
TASKS = 200
LOOKS = 5
STEPS = TASKS * (2 * LOOKS + 1)
"""Each look is a model step and a tool step, and one more decides Done."""
SLOTS = 32


@dataclass(frozen=True)
class Rate:
    """A rate a second, and CPU milliseconds for each of them: the worker's and PostgreSQL's."""

    per_s: float
    worker_ms: float
    postgres_ms: float


def bare(m: Machine, count: int = 4000) -> Rate:
    """No-op tasks a second of one Celery worker, between a tenth and all of them."""
    m.clear()
    pipe = m.redis.pipeline()
    for number in range(count):
        pipe.lpush(QUEUE, _message(number))
    pipe.execute()
    with m.worker("tests.bench.bare", QUEUE, SLOTS) as process:
        until(lambda: _left(m) <= count * 0.9, 60, 0.005)
        first, began, cpu = _left(m), time.perf_counter(), cpu_of(process)
        until(lambda: _left(m) == 0, 60, 0.005)
        return Rate(first / (time.perf_counter() - began), (cpu_of(process) - cpu) / first * 1000, 0.0)


def _left(m: Machine) -> int:
    return int(m.redis.llen(QUEUE)) + int(m.redis.hlen("unacked"))


def _message(number: int) -> str:
    body = [[number], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    task = str(uuid4())
    return json.dumps({
        "body": base64.b64encode(json.dumps(body).encode()).decode(), "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "noop", "id": task, "root_id": task, "parent_id": None, "group": None,
                    "retries": 0, "eta": None, "expires": None, "timelimit": [None, None], "ignore_result": True,
                    "argsrepr": "", "kwargsrepr": "", "origin": "bench"},
        "properties": {"correlation_id": task, "reply_to": "", "delivery_mode": 2, "priority": 0,
                       "delivery_info": {"exchange": "", "routing_key": QUEUE}, "body_encoding": "base64",
                       "delivery_tag": task},
    })  # fmt: skip


def ours(m: Machine, *, events: bool) -> Rate:
    """Our steps a second of one worker process with an instant model, between a tenth and all of them."""
    m.clear()
    for _ in range(TASKS):
        m.fleet.open("bench", f"{LOOKS} 400 0")
    start = m.steps()
    with m.ours(SLOTS, events=events) as process:  # type: ignore[attr-defined]
        until(lambda: m.steps() - start >= STEPS * 0.1, 60)
        first, began = m.steps(), time.perf_counter()
        cpu, server = cpu_of(process), m.postgres_cpu()
        until(lambda: m.steps() - start >= STEPS, 120, 0.05)
        took, count = time.perf_counter() - began, m.steps() - first
        return Rate(count / took, (cpu_of(process) - cpu) / count * 1000, (m.postgres_cpu() - server) / count * 1000)


@dataclass(frozen=True)
class Slow:
    """Many tasks on a model of 2 s: wall time over ideal, and the worker's memory in MB."""

    over_ideal: float
    memory_mb: float


MODEL_S = 2.0


def slow(m: Machine, tasks: int, slots: int, *, events: bool, decisions: int = 3) -> Slow:
    """Tasks that start spread over one model call, each with a few decisions; one worker process.

    They stand in the table before, out of the sweeper's sight, so that opening them is not measured.

    A reply has two calls that read, which run in the step of the decision: one step for each model call.
    """
    m.clear()
    ids = [m.fleet.open("bench", f"{2 * (decisions - 1)} 400 {MODEL_S} 2") for _ in range(tasks)]
    m.fleet.one("WITH held AS (UPDATE agent_tasks SET nudged_at = clock_timestamp() + interval '1 hour'"
                " WHERE id >= %(first)s RETURNING 1) SELECT count(*) FROM held", first=ids[0])  # fmt: skip
    lanes = m.fleet.run.lanes
    lanes.prefix, lanes.windows["steps"] = "bench", 2 * slots + 1
    with m.ours(slots, events=events) as process:  # type: ignore[attr-defined]
        until(
            lambda: (
                m.fleet.one("SELECT count(*) FROM workers_alive WHERE heartbeat > clock_timestamp() - interval '3 s'")
                > 0
            ),
            60,
        )
        began, first, memory = time.perf_counter(), _now(m), 0.0
        for number, task in enumerate(ids):
            lanes.ring("steps", [(task, "bench")])
            ahead = began + MODEL_S * number / tasks - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
        until(lambda: _finished(m, ids[0]) == tasks, 120, 0.1)
        took = _last(m, ids[0]) - first
        memory = process.memory_info().rss / 1e6
    return Slow((took - MODEL_S) / (decisions * MODEL_S), memory)


def _finished(m: Machine, first: str) -> int:
    return int(m.fleet.one("SELECT count(*) FROM agent_tasks WHERE id >= %(first)s AND status = 'done'", first=first))


def _last(m: Machine, first: str) -> float:
    sql = "SELECT extract(epoch FROM max(finished_at))::float8 FROM agent_tasks WHERE id >= %(first)s"
    return float(m.fleet.one(sql, first=first))


def _now(m: Machine) -> float:
    """The database's clock."""
    return float(m.fleet.one("SELECT extract(epoch FROM clock_timestamp())::float8"))


@dataclass(frozen=True)
class Growth:
    """Cost of a step late in a long task over early: milliseconds and WAL bytes, as ratios; and WAL a step."""

    time: float
    wal: float
    wal_bytes: float


def growth(m: Machine, events: int = 10_000, size: int = 2_000) -> Growth:
    """One task of many events with a full window: the median step of the last 100 against events 10 to 110."""
    m.clear()
    m.fleet.run.model.scripts["bench"] = script  # type: ignore[attr-defined]
    task = m.fleet.open("bench", f"{events} {size} 0")
    m.fleet.operate.raise_budget(task, by="bench", decisions=events, tokens=10**9)
    _timed(m, task, 10)
    early = _timed(m, task, 110)
    _timed(m, task, events - 100)
    late = _timed(m, task, events)
    return Growth(late[0] / early[0], late[1] / early[1], late[1])


def _timed(m: Machine, task: str, last: int) -> tuple[float, float]:
    """Median milliseconds and mean WAL bytes of the steps from here to a seq."""
    took: list[float] = []
    before = m.fleet.one("SELECT pg_current_wal_insert_lsn()::text")
    while m.fleet.one("SELECT seq FROM agent_tasks WHERE id = %(id)s", id=task) < last:
        began = time.perf_counter()
        m.fleet.step(task)
        took.append((time.perf_counter() - began) * 1000)
    wal = m.fleet.one("SELECT (pg_current_wal_insert_lsn() - %(lsn)s::pg_lsn)::float8", lsn=before)
    return statistics.median(took), float(wal) / max(1, len(took))
