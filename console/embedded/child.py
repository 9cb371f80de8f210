"""Child processes of `twelvefold up` and of the tests: started, watched, stopped, and never left behind.

Promises: a child runs in a session of its own (Ctrl-C in a terminal reaches only us, and we stop it in order),
writes to a log file, and on Linux ends when we end, even by SIGKILL. What goes wrong is told as a `StackError` with
the end of that log.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twelvefold.errors import TwelvefoldError

PATIENCE = 5.0
"""Seconds that a predecessor on the same home, already asked to end, is given to be gone."""
_LOG_LIMIT = 10_000_000
_PR_SET_PDEATHSIG = 1


class StackError(TwelvefoldError):
    """A part of the embedded stack did not start or does not answer."""


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that a child runs as: numeric user and group."""

    uid: int
    gid: int


def run_as(account: Account | None) -> dict[str, Any]:
    """The arguments that make `subprocess` run a program as `account`, in no other group; none for None."""
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}


def port_is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
        return False


def free_port() -> int:
    """A TCP port that nothing listens on at 127.0.0.1, between 20000 and 29999.

    Below the range that systems use for outgoing connections: a client that keeps trying a port in that range while
    its server is down can be connected to itself, and then the server cannot come back. Another process may take
    the port first.
    """
    for port in random.sample(range(20_000, 30_000), 1000):
        if port_is_free(port):
            return port
    raise StackError(
        "No TCP port between 20000 and 29999 is free on 127.0.0.1. End what listens there, then try again."
    )


@contextmanager
def claimed(lock: Path, what: str) -> Iterator[int]:
    """Hold the exclusive lock on the file `lock` for the block; yields its descriptor, to be passed to `Child.start`.

    A child that inherits the descriptor keeps the lock as long as it or any descendant lives, whatever becomes of
    us: whoever gets the lock knows that nothing of a former run is left. Waits `PATIENCE` seconds, then raises
    StackError; also when the home belongs to someone else.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError:
        owner = (lock if lock.exists() else lock.parent).stat().st_uid
        raise StackError(
            f"{what} cannot use {lock.parent}: it belongs to the user with id {owner}, you are {os.geteuid()}.\n"
            "Start it as that user, or name another home."
        ) from None
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StackError(_already_runs(lock, what)) from None
                time.sleep(0.02)
        yield descriptor
    finally:
        os.close(descriptor)


def _already_runs(lock: Path, what: str) -> str:
    holder = lock.read_text().strip()
    return (
        f"{what} already runs on {lock.parent}" + (f" (process {holder})" if holder else "") + ".\n"
        "One home serves one stack at a time: use the running one, stop it first (Ctrl-C where it was started), "
        "or name another home."
    )


class Child:
    """One child process with a log file.

    Args:
        name: what people call it, for messages.
        argv: program and arguments.
        log: takes stdout and stderr, appended to. Found over 10 MB at a start, it is moved aside to `<log>.1`.
        env: the whole environment; None hands on ours.
        cwd: working directory.
        account: whom to run as; only root may name another than itself.
        orphaned: the signal sent to the child when we die (Linux only). The kernel sends it when the *thread* that
            called `start` ends, so call `start` in a thread that lives as long as the child should: the main thread.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        account: Account | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = [str(part) for part in argv]
        self._env = env
        self._cwd = cwd
        self._account = account
        self._orphaned = orphaned
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the last start; StackError when it was never started."""
        if self._process is None:
            raise StackError(f"{self.name} was not started. Call start() first.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives now."""
        return self._process is not None and self._process.poll() is None

    def start(self, lock: int | None = None) -> None:
        """Start the process unless it runs. `lock` is a descriptor from `claimed`, for the process to inherit."""
        if self.running:
            return
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    start_new_session=True,
                    pass_fds=() if lock is None else (lock,),
                    preexec_fn=_die_with_us(self._orphaned),
                    **run_as(self._account),
                )
        except OSError as error:
            raise StackError(f"{self.name} could not be started: {error}. Try `make install`.") from error
        if lock is not None:
            os.truncate(lock, 0)
            os.pwrite(lock, str(self._process.pid).encode(), 0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end, at most `timeout` seconds; the exit code (negative: a signal), None when it still runs."""
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout)
        return None

    def ask_to_stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send `how` and do not wait."""
        if self._process is not None and self.running:
            self._process.send_signal(how)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 30.0) -> int | None:
        """Send `how`, wait `timeout` seconds, then kill; the exit code, None when it was never started."""
        if self._process is not None and self.running:
            self._process.send_signal(how)
            if self.wait(timeout) is None:
                self.kill()
        return self.wait(0)

    def kill(self) -> None:
        """End it and what it started in its session with SIGKILL, as a crash would; returns when it is gone."""
        if self._process is not None and self.running:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace")[-20_000:].splitlines()[-lines:]) or "(empty)"

    def until(
        self,
        ready: Callable[[], object],
        *,
        not_yet: tuple[type[Exception], ...],
        hint: str,
        seconds: float = 30.0,
    ) -> None:
        """Poll `ready` until it returns instead of raising one of `not_yet`; then the child serves.

        When the process ends or `seconds` pass it is killed, and StackError says the last answer, the end of the log
        and `hint`.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                ready()
                return
            except not_yet as error:
                answer = str(error).strip() or type(error).__name__
            if not self.running:
                what = f"ended with exit code {self.wait(0)} instead of serving"
            elif time.monotonic() > deadline:
                what = f"did not answer within {seconds:g} s; the last try said: {answer}"
            else:
                time.sleep(0.02)
                continue
            self.kill()
            raise StackError(f"{self.name} {what}.\nEnd of {self.log}:\n{self.tail()}\nWhat to do: {hint}")


def _die_with_us(how: signal.Signals) -> Callable[[], None] | None:
    """What the new process does first: ask the kernel for the signal `how` at our death. Runs between fork and exec."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
        if os.getppid() != parent:  # we died before the kernel was asked
            os._exit(1)

    return arm
