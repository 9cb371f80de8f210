"""The real database, broker and mail server for tests, once a session, and a fresh migrated database for each test.

A test asks for the fixtures `postgres`, `valkey`, `mail`, `fresh_database`. It may stop and kill the servers: they are
started again for the next test. What it breaks for good (a file, a role) has to be its own server, in a `short_home`.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from console.embedded import MailCatcher, Postgres, Valkey
from console.embedded.postgres import APP, OWNER, READER

_number = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Database:
    """One database and its SQLAlchemy URL for each role."""

    name: str
    owner: str
    app: str
    reader: str


@contextmanager
def short_home() -> Iterator[Path]:
    """A temporary home that other accounts may enter, as root's PostgreSQL must; pytest's `tmp_path` keeps them out."""
    with tempfile.TemporaryDirectory(prefix="twelvefold-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def fresh(postgres: Postgres, template: str) -> Iterator[Database]:
    """A copy of the database `template`, dropped at the end whoever is connected."""
    name = f"fresh_{next(_number)}"
    postgres.start()  # a test before this one may have killed it
    postgres.create_database(name, template)
    try:
        yield Database(name, *(postgres.url(role, name) for role in (OWNER, APP, READER)))
    finally:
        postgres.start()
        postgres.drop_database(name)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """The cluster of this session, without fsync.

    A test that needs fsync says `@pytest.mark.parametrize("postgres", [True], indirect=True)` and gets another cluster.
    """
    with short_home() as home, Postgres(home, durable=getattr(request, "param", False)) as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres: Postgres) -> str:
    """The name of a migrated database to copy; it is empty as long as there is no `console.migrate`."""
    name = "twelvefold_template"
    postgres.create_database(name)
    if importlib.util.find_spec("console.migrate"):
        importlib.import_module("console.migrate").migrate(postgres.url(OWNER, name))
    return name


@pytest.fixture
def fresh_database(postgres: Postgres, template_database: str) -> Iterator[Database]:
    """A migrated, otherwise empty database for this test alone."""
    with fresh(postgres, template_database) as database:
        yield database


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """The broker of this session, without persistence. What other tests left in it is there: `flush` first."""
    with short_home() as home, Valkey(home, durable=False) as server:
        yield server


@pytest.fixture
def mail() -> Iterator[MailCatcher]:
    """A mail server for this test alone."""
    with MailCatcher() as catcher:
        yield catcher
