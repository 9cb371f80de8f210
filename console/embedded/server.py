"""What the embedded servers share: a home, a child process, the verbs over it, and an address that is remembered."""

from __future__ import annotations

import json
import os
import secrets
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from console.embedded.child import Child, StackError, free_port, port_is_free

CLEAN = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
"""The environment of a server. Nothing of ours: PGPORT, PGDATA or a strange locale would change what it does."""


class Server(ABC):
    """A server that keeps all it needs in `home` and is found again by `home` alone."""

    name: ClassVar[str]
    secrets_of: ClassVar[tuple[str, ...]]
    """Whose passwords are generated and kept in the note."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the server, for tests that kill; StackError before the first start."""
        if self._child is None:
            raise StackError(f"{self.name} was not started. Call start() first.")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server that this object started lives now."""
        return self._child is not None and self._child.running

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.home / f"{self.name.lower()}.log"

    @abstractmethod
    def start(self) -> None:
        """Start and wait until it serves, at most 30 s. Nothing happens when this object's server already runs."""

    @abstractmethod
    def stop(self) -> None:
        """Shut down in order and wait for the end; clients are cut off. Nothing happens when it does not run."""

    def kill(self) -> None:
        """SIGKILL, as a crash would; `start` recovers."""
        if self._child is not None:
            self._child.kill()

    def restart(self, down_for: float = 0) -> None:
        """Stop, stay away for `down_for` seconds, start again at the same address."""
        self.stop()
        time.sleep(down_for)
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _note(self) -> Path:
        return self.home / f"{self.name.lower()}.json"

    def _remembered(self) -> dict[str, Any]:
        """Port and passwords of this home; made at the first call and written down, mode 0600."""
        if not self._note.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            fresh = {"port": free_port()} | {name: secrets.token_hex(16) for name in self.secrets_of}
            write_private(self._note, json.dumps(fresh))
        found: dict[str, Any] = json.loads(self._note.read_text())
        return found

    def _settle_port(self) -> None:
        """Before the first start of this object: choose another port when the remembered one has been taken since."""
        known = self._remembered()
        if self._child is None and not port_is_free(known["port"]):
            write_private(self._note, json.dumps(known | {"port": free_port()}))


def write_private(path: Path, text: str) -> None:
    """Write a file that only we may read, whole or not at all."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    scratch.replace(path)
