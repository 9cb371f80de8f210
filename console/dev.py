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
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from urllib.error import URLError
from urllib.request import urlopen

from workers.settings import load
from workers.store import tokens
from workers.store.database import Database

from .embedded import Child, Postgres, StackError, Valkey, free_port
from .embedded.child import port_is_free
from .embedded.postgres import APP, OWNER
from .embedded.server import write_private
from .embedded.stand_ins import StandIns
from .migrate import ROOT, migrate
from .timetable import declare

DATABASE = "twelvefold"
LANES = ("answers", "steps", "delivery")
ANSWERS_S = 60.0
ONE_EACH = dict.fromkeys(LANES, 1)
NOTED = (
    "DATABASE_URL", "OWNER_DATABASE_URL", "BROKER_URL", "GITHUB_WEBHOOK_SECRETS", "TWELVEFOLD_HTTP_PORT",
    "TWELVEFOLD_SERVICES", "TWELVEFOLD_PUBLIC_URL", "TWELVEFOLD_LINK_SECRETS", "SMTP_HOST", "SMTP_PORT", "SMTP_TLS",
)  # fmt: skip
"""What the other verbs need of a running stack."""
SECRETS = ("GITHUB_WEBHOOK_SECRETS", "TWELVEFOLD_LINK_SECRETS", "FLOWER_PASSWORD")
PORTS = ("TWELVEFOLD_HTTP_PORT", "FLOWER_PORT", "STAND_INS_PORT", "STAND_INS_SMTP_PORT")
HANDED_ON = ("GITHUB_WEBHOOK_SECRETS", "TWELVEFOLD_LINK_SECRETS", "TWELVEFOLD_HTTP_PORT", "FLOWER_PORT")
PERSON = "releases@example.org"
"""Whom the token of `up` speaks for: the one whom the agent `deploy` asks."""
ROLES: tuple[tokens.Role, ...] = ("reader", "requester", "approver", "operator")


class Stack:
    """All of Twelvefold in `home`; `environment` may name a database, a broker, SMTP or a model to use instead."""

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str] | None = None,
        *,
        flower: bool = True,
        workers: Mapping[str, int] = ONE_EACH,
    ) -> None:
        self.home = home
        self.env = dict(os.environ if environment is None else environment)
        self.with_flower = flower
        self.workers = workers
        self.token = ""
        self.stand_ins: StandIns
        self._chosen: dict[str, str] = {}
        self._servers: list[Postgres | Valkey | StandIns] = []
        self._children: list[Child] = []

    def start(self) -> None:
        """Start what is missing, migrate, start our processes. Raises StackError with what to do."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o755)
        try:
            self._serve_database()
            self._serve_broker()
            self._choose()
            self._stand_in()
            if "OWNER_DATABASE_URL" in self.env:
                declare(load(self.env))
            for name, argv in self._ours():
                self._run(name, argv)
            self._until_answers()
            self._give_token()
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
    def pids(self) -> set[int]:
        """The process ids of our own processes."""
        return {child.pid for child in self._children}

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

    def _choose(self) -> None:
        """Ports and secrets: given, or as they were last time, so that links in old mails still lead somewhere."""
        chosen = self._remember({})
        for name in SECRETS:
            chosen.setdefault(name, secrets.token_hex(16))
        for name in PORTS:
            if name not in chosen or not port_is_free(int(chosen[name])):
                chosen[name] = str(free_port())
        self._remember(chosen)
        self._chosen = chosen
        for name in HANDED_ON:
            self.env.setdefault(name, chosen[name])
        self.env.setdefault("FLOWER_BASIC_AUTH", f"operator:{chosen['FLOWER_PASSWORD']}")
        self.env.setdefault("TWELVEFOLD_PUBLIC_URL", self.http)
        self.env["PYTHONPATH"] = str(ROOT)

    def _stand_in(self) -> None:
        """Mails and the pipeline, where no other ones are given."""
        self.stand_ins = StandIns(
            self.home, port=int(self._chosen["STAND_INS_PORT"]), smtp_port=int(self._chosen["STAND_INS_SMTP_PORT"])
        )
        self.stand_ins.start()
        self._servers.append(self.stand_ins)
        self.env.setdefault("TWELVEFOLD_SERVICES", f"pipeline={self.stand_ins.service}")
        if "SMTP_HOST" not in self.env:
            mail = self.stand_ins.mail
            self.env |= {"SMTP_HOST": mail.host, "SMTP_PORT": str(mail.port), "SMTP_TLS": "none"}

    def _give_token(self) -> None:
        """The token of the API for whoever starts the stack: last time's while it is valid."""
        with closing(Database(self.env["DATABASE_URL"], size=1)) as db:
            self.token = self._chosen.get("API_TOKEN", "")
            if not self.token or tokens.find(db, self.token) is None:
                tenant = self.env.get("TWELVEFOLD_TENANT", "default")
                _, self.token = tokens.add(db, tenant=tenant, principal=PERSON, roles=ROLES)
                self._remember({"API_TOKEN": self.token})

    def _remember(self, more: Mapping[str, str]) -> dict[str, str]:
        path = self.home / "chosen.json"
        chosen: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        chosen |= more
        write_private(path, json.dumps(chosen))
        return chosen

    def _ours(self) -> list[tuple[str, list[str]]]:
        command = [sys.executable, "-m", "console.cli"]
        found = [
            (f"worker-{lane}{'' if number == 0 else f'-{number + 1}'}", [*command, "worker", "--lane", lane])
            for lane, count in self.workers.items()
            for number in range(count)
        ]
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
