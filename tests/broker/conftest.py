"""A stage for one test, and a standing fleet of two workers for the tests that break nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from console.embedded import Postgres, Valkey
from tests.stack import fresh, short_home

from .processes import Stage, stage


@pytest.fixture
def s(fresh_database: Any, valkey: Valkey) -> Iterator[Stage]:
    """A stage without workers, on an empty broker."""
    valkey.start()
    valkey.flush()
    with stage(fresh_database, valkey) as made:
        yield made


@pytest.fixture
def broken(fresh_database: Any) -> Iterator[Stage]:
    """A stage whose Valkey is this test's own, to be broken at will."""
    with short_home() as home, Valkey(home, durable=False) as server, stage(fresh_database, server) as made:
        yield made


@pytest.fixture(scope="module")
def standing(postgres: Postgres, template_database: str) -> Iterator[Stage]:
    """Two workers that live as long as this module's tests, on a broker of their own."""
    with (
        short_home() as home,
        Valkey(home, durable=False) as server,
        fresh(postgres, template_database) as database,
        stage(database, server) as made,
    ):
        both = [made.worker(ready=False, scripted=True) for _ in range(2)]
        made.until_up(*both)
        yield made
