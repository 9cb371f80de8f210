"""The fixtures of `tests/stack.py` give every test what it asks for, whatever the test before it did."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from console.embedded import Postgres
from console.embedded.postgres import APP, OWNER, READER
from tests.stack import Database


def test_a_fresh_database_is_there_for_every_role(fresh_database: Database) -> None:
    for url, role in ((fresh_database.owner, OWNER), (fresh_database.app, APP), (fresh_database.reader, READER)):
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as db:
            assert db.execute(sa.text("SELECT current_user, current_database()")).one() == (role, fresh_database.name)


def test_a_fresh_database_comes_even_after_a_test_that_killed_the_server(
    postgres: Postgres, request: pytest.FixtureRequest
) -> None:
    postgres.kill()
    database = request.getfixturevalue("fresh_database")
    with sa.create_engine(database.app, poolclass=sa.NullPool).connect() as db:
        assert db.scalar(sa.text("SELECT 1")) == 1
