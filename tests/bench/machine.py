"""The machine under measurement: embedded servers with fsync on, worker processes, and what CPU each of them used."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from console.embedded import Postgres, Valkey
from console.embedded.postgres import APP, OWNER
from console.migrate import ROOT, migrate
from tests.harness import Fleet, make_tables
from workers.registry import Script

COMMON = ["--pool", "threads", "--without-gossip", "--without-mingle", "--loglevel", "ERROR"]


@dataclass
class Machine:
    """Servers and a hand on the database."""

    postgres: Postgres
    valkey: Valkey
    fleet: Fleet
    redis: redis.Redis

    @contextmanager
    def worker(self, module: str, queue: str, slots: int, **env: str) -> Iterator[psutil.Process]:
        """A Celery worker process of `module`, gone afterwards."""
        database = self.fleet.settings.database_url.get_secret_value()
        environment = {
            **os.environ, "DATABASE_URL": database, "BROKER_URL": self.valkey.url, "AGENT_MODULES": "tests.agents",
            "PYTHONPATH": str(ROOT), **env,
        }  # fmt: skip
        argv = [sys.executable, "-m", "celery", "-A", module, "worker", *COMMON, "-c", str(slots), "-Q", queue]
        process = subprocess.Popen(
            argv, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ours(self, slots: int, *, events: bool = False, **env: str) -> object:
        """One of our workers on the lane `steps`."""
        settings = {"TWELVEFOLD_LANE_PREFIX": "bench", "TWELVEFOLD_WORKER_EVENTS": str(events).lower(), **env}
        return self.worker("workers.tasks", "bench.steps", slots, **settings)

    def steps(self) -> int:
        """Commits so far."""
        return int(self.fleet.one("SELECT coalesce(sum(current_step), 0) FROM agent_tasks"))

    def postgres_cpu(self) -> float:
        """Seconds of CPU of the server's processes so far."""
        server = psutil.Process(self.postgres.pid)
        return sum(cpu_of(process) for process in [server, *server.children(recursive=True)])

    def clear(self) -> None:
        """Empty tables, empty broker."""
        self.redis.flushdb()
        with self.fleet.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET status = 'cancelled' WHERE status IN ('ready', 'waiting')")


def cpu_of(process: psutil.Process) -> float:
    """Seconds of CPU, user and system, of one process."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


@contextmanager
def machine(script: Script) -> Iterator[Machine]:
    """Fresh servers, a migrated database, and a fleet of this process for opening tasks."""
    with tempfile.TemporaryDirectory(prefix="twelvefold-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        with Postgres(home) as postgres, Valkey(home, durable=False) as valkey:
            postgres.create_database("bench")
            migrate(postgres.url(OWNER, "bench"))
            make_tables(postgres.url(OWNER, "bench"))
            fleet = Fleet(postgres.url(APP, "bench"), script, broker=valkey.url)
            client = redis.Redis.from_url(valkey.url)
            try:
                yield Machine(postgres, valkey, fleet, client)
            finally:
                fleet.close()
                client.close()
                postgres.destroy()


def until(done: Callable[[], bool], seconds: float, every: float = 0.02) -> None:
    """Poll until it is true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(every)
