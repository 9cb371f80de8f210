"""A worker dies while COMMIT is on its way, there or back, for a commit of several statements: all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from console.embedded import Postgres, Valkey
from tests.kills.processes import World, world
from tests.proxy import Proxy
from twelvefold.events import Doubted, Started

pytestmark = [pytest.mark.kills, pytest.mark.timeout(120)]

NOTE = "keep_note one"


@pytest.fixture
def w(fresh_database: Any, valkey: Valkey) -> Iterator[World]:
    """A world without workers."""
    valkey.start()
    with world(fresh_database, valkey) as made:
        yield made


@pytest.fixture
def line(postgres: Postgres) -> Iterator[Proxy]:
    """A way to the database that can be held."""
    with Proxy(postgres.socket) as proxy:
        yield proxy


def freed(w: World) -> None:
    """Another worker, to whom the first is dead at once."""
    with w.fleet.run.db.connection() as connection:
        connection.execute("UPDATE workers_alive SET heartbeat = heartbeat - interval '1 hour'")
    w.worker()


@pytest.mark.parametrize(("where", "stands"), [("to_server", False), ("to_client", True)])
def test_killed_during_the_commit_of_a_write_its_row_and_its_event_stand_or_fall_together(
    w: World, line: Proxy, where: Any, stands: bool
) -> None:
    first = w.worker(database=line.url(w.app_url))
    rule = line.hold_next(b"COMMIT", where, after=b"INSERT INTO notes")
    task = w.fleet.open("notes", NOTE)
    rule.wait(30)
    first.kill()
    line.cut()
    w.until(lambda: w.one("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") == 0)
    assert w.one("SELECT count(*) FROM notes") == w.fleet.kinds(task).count("Returned") == int(stands)
    freed(w)
    w.until_status(task, "done")
    assert w.one("SELECT count(*) FROM notes") == w.fleet.kinds(task).count("Returned") == 1
    assert len(w.model.requests) == 2, "both decisions stood before"


@pytest.mark.parametrize(("where", "begun"), [("to_server", False), ("to_client", True)])
def test_killed_during_the_commit_of_a_begin_nothing_has_left(w: World, line: Proxy, where: Any, begun: bool) -> None:
    first = w.worker(database=line.url(w.app_url))
    rule = line.hold_next(b"COMMIT", where, after=b"Started")
    task = w.pay("pay_and_look")
    rule.wait(30)
    first.kill()
    line.cut()
    assert w.service.begun == []
    w.until(lambda: w.fleet.kinds(task).count("Started") == int(begun))
    freed(w)
    w.until_status(task, "done")
    events = w.fleet.events(task)
    assert any(isinstance(event, Doubted) for event in events) == begun, "what is durable is doubted, and found out"
    assert len([event for event in events if isinstance(event, Started)]) == 1
    assert len(w.posts()) == len(w.service.effects) == w.one("SELECT count(*) FROM refunds") == int(not begun)


@pytest.mark.parametrize("where", ["to_server", "to_client"])
def test_killed_during_the_commit_of_an_effect_it_is_paid_and_written_down_once(
    w: World, line: Proxy, where: Any
) -> None:
    w.service.hold_after()
    first = w.worker(database=line.url(w.app_url))
    task = w.pay("pay_again")
    w.service.waiting(1, 30)
    rule = line.hold_next(b"COMMIT", where, after=b"INSERT INTO refunds")
    w.service.release()
    rule.wait(30)
    first.kill()
    line.cut()
    freed(w)
    w.until_status(task, "done")
    assert len(w.service.effects) == w.one("SELECT count(*) FROM refunds") == 1
    assert len(w.posts()) == (2 if where == "to_server" else 1), "asked again with the same key, or not at all"
    assert w.fleet.kinds(task).count("Returned") == 1
