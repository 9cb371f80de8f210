"""Everything on one machine: the embedded servers that are not given from outside, and our own processes.

`start` returns when all of it answers; `stop` ends it in reverse order and keeps the data. A process of ours that
ends is started again.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from urllib.error import URLError
from urllib.request import urlopen

from .embedded import Child, MailCatcher, Postgres, StackError, Valkey, free_port
from .embedded.postgres import APP, OWNER
from .embedded.server import write_private
from .migrate import ROOT, migrate

DATABASE = "twelvefold"
LANES = ("answers", "steps", "delivery")
ANSWERS_S = 60.0
NOTED = (
    "DATABASE_URL", "OWNER_DATABASE_URL", "BROKER_URL", "GITHUB_WEBHOOK_SECRETS", "TWELVEFOLD_HTTP_PORT",
)  # fmt: skip
"""What the other verbs need of a running stack."""


class Stack:
    """All of Twelvefold in `home`; `environment` may name a database, a broker, SMTP or a model to use instead."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None, *, flower: bool = True) -> None:
        self.home = home
        self.env = dict(os.environ if environment is None else environment)
        self.with_flower = flower
        self.mail: MailCatcher | None = None
        self._servers: list[Postgres | Valkey | MailCatcher] = []
        self._children: list[Child] = []

    def start(self) -> None:
        """Start what is missing, migrate, start our processes. Raises StackError with what to do."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o755)
        try:
            self._serve_database()
            self._serve_broker()
            self._serve_mail()
            self._choose()
            for name, argv in self._ours():
                self._run(name, argv)
            self._until_answers()
            write_private(self.note, json.dumps({k: v for k, v in self.env.items() if k in NOTED}))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything; a worker finishes or gives back what it holds."""
        self.note.unlink(missing_ok=True)
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.stop(timeout=20)
        for server in reversed(self._servers):
            server.stop()
        self._children, self._servers = [], []

    def __enter__(self) -> Stack:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def destroy(self) -> None:
        """Stop, and delete the data of the embedded database, wherever its account had to keep them."""
        databases = [server for server in self._servers if isinstance(server, Postgres)] or [Postgres(self.home)]
        self.stop()
        for database in databases:
            database.destroy()

    @property
    def note(self) -> Path:
        """Where a running stack notes its environment, for the other verbs; readable by its owner only."""
        return self.home / "environment.json"

    def watch(self, stopping: Event) -> None:
        """Start again what has ended, until told to stop."""
        while not stopping.wait(1.0):
            for child in self._children:
                child.start()

    @property
    def http(self) -> str:
        """The address of the public application."""
        return f"http://127.0.0.1:{self.env['TWELVEFOLD_HTTP_PORT']}"

    @property
    def flower(self) -> str:
        """The address of Flower, with the user and the password to log in."""
        user, _, password = self.env["FLOWER_BASIC_AUTH"].partition(":")
        return f"http://127.0.0.1:{self.env['FLOWER_PORT']}  (user {user}, password {password})"

    def _serve_database(self) -> None:
        if "DATABASE_URL" not in self.env:
            postgres = Postgres(self.home)
            postgres.start()
            self._servers.append(postgres)
            postgres.create_database(DATABASE)
            self.env["DATABASE_URL"] = postgres.url(APP, DATABASE)
            self.env["OWNER_DATABASE_URL"] = postgres.url(OWNER, DATABASE)
        if "OWNER_DATABASE_URL" in self.env:
            migrate(self.env["OWNER_DATABASE_URL"])

    def _serve_broker(self) -> None:
        if "BROKER_URL" not in self.env:
            valkey = Valkey(self.home)
            valkey.start()
            self._servers.append(valkey)
            self.env["BROKER_URL"] = valkey.url

    def _serve_mail(self) -> None:
        if "SMTP_HOST" not in self.env:
            self.mail = MailCatcher(self.home)
            self.mail.start()
            self._servers.append(self.mail)
            self.env |= {"SMTP_HOST": self.mail.host, "SMTP_PORT": str(self.mail.port), "SMTP_TLS": "none"}

    def _choose(self) -> None:
        self.env.setdefault("GITHUB_WEBHOOK_SECRETS", secrets.token_hex(16))
        self.env.setdefault("TWELVEFOLD_HTTP_PORT", str(free_port()))
        self.env.setdefault("FLOWER_PORT", str(free_port()))
        self.env.setdefault("FLOWER_BASIC_AUTH", f"operator:{secrets.token_urlsafe(12)}")
        self.env["PYTHONPATH"] = str(ROOT)

    def _ours(self) -> list[tuple[str, list[str]]]:
        command = [sys.executable, "-m", "console.cli"]
        found = [(f"worker-{lane}", [*command, "worker", "--lane", lane]) for lane in LANES]
        found.append(("http", [*command, "http", "--port", self.env["TWELVEFOLD_HTTP_PORT"]]))
        if self.with_flower:
            found.append(("flower", [*command, "flower", "--port", self.env["FLOWER_PORT"]]))
        return found

    def _run(self, name: str, argv: list[str]) -> None:
        logs = self.home / "logs"
        logs.mkdir(exist_ok=True)
        child = Child(name, argv, log=logs / f"{name}.log", env=self.env, cwd=ROOT)
        child.start()
        self._children.append(child)

    def _until_answers(self) -> None:
        deadline = monotonic() + ANSWERS_S
        pause = Event()
        while monotonic() < deadline:
            for child in self._children:
                if not child.running:
                    raise StackError(f"{child.name} ended at once. The end of {child.log}:\n{child.tail()}")
            if self._http_answers():
                return
            pause.wait(0.1)
        raise StackError(f"Nothing answers at {self.http} after {ANSWERS_S:g} s. See the logs in {self.home / 'logs'}.")

    def _http_answers(self) -> bool:
        try:
            with urlopen(f"{self.http}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
