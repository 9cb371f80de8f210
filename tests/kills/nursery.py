"""A process that has imported what a worker imports, and forks a worker at each order: a start costs no two seconds.

What it forks is a real process with a command line, an environment and a log of its own. Nothing that reads the
environment is imported before the fork. It ends with the process that started it, and takes its children along.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from console.migrate import ROOT

READY = "ready"
SHARED = (
    "celery.bin.worker", "celery.concurrency.thread", "celery.worker.consumer", "kombu.transport.redis",
    "tests.agents.notes.agent", "tests.agents.refunds.agent", "workers.host", "workers.model",
)  # fmt: skip
"""What every worker imports anyhow."""


class Child:
    """A forked worker; what tests use of `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Wait for the exit code; TimeoutExpired after `timeout` seconds."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The forking process, as seen by the tests. Use it from any thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kills.nursery"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lock = Lock()
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == READY, "the nursery did not start"

    def start(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
        """Run this command line of Celery in a new process."""
        return Child(self, self.ask({"argv": list(argv), "env": dict(env), "log": str(log)}))

    def ask(self, order: dict[str, Any]) -> Any:
        """One order and its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and every child that is left."""
        self._process.communicate()


@cache
def nursery() -> Nursery:
    """The one of this test session."""
    made = Nursery()
    atexit.register(made.close)
    return made


def _tend() -> dict[str, Any] | None:
    """Carry out orders until there are no more. In the parent None, in each child the order that made it."""
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "ended" in order:
            pid, status = os.waitpid(order["ended"], os.WNOHANG)
            children.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return dict(order)
            children.add(answer)
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    return None


def _become(order: dict[str, Any]) -> int:
    """Be the worker that was ordered."""
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
    empty = os.open(os.devnull, os.O_RDONLY)
    for number, kept in ((empty, 0), (log, 1), (log, 2)):
        os.dup2(number, kept)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["celery", *order["argv"]]
    from celery.__main__ import main

    return int(main() or 0)


def _main() -> int:
    for name in SHARED:
        import_module(name)
    assert "workers.app" not in sys.modules, "it reads the environment, so every worker imports it for itself"
    print(READY, flush=True)
    order = _tend()
    return 0 if order is None else _become(order)


if __name__ == "__main__":
    sys.exit(_main())
