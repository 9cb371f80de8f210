"""Delays and clocks: what is due is a row with a time of the database's, whoever restarts, whatever it thinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from time import time
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import Counted, due, once, together
from tests.harness import Fleet, fleet
from twelvefold import Done, Task, Text, Wait
from twelvefold.errors import Transport
from twelvefold.ports import ModelReply, ModelRequest
from twelvefold.tool import Tool
from workers.host import Host
from workers.ids import uuid7
from workers.operate import Refused
from workers.step import step
from workers.store import alive, sweeps


def reminds(task: Task) -> Tool[Any]:
    """Wait for three days, then be done."""
    return Done(outcome=Text(text="now")) if task.did(Wait) else Wait(why="remind", seconds=3 * 86_400)


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents remind."""
    with fleet(fresh_database, reminds, db_pool=12) as found:
        yield found


def test_b28_a_reminder_in_three_days_comes_once_whoever_restarts_meanwhile(f: Fleet) -> None:
    task = f.open()
    assert f.drain(task) == "waiting"
    ahead = f.row(task)["due_at"] - f.one("SELECT clock_timestamp()")
    assert timedelta(days=2, hours=23) < ahead <= timedelta(days=3)
    for _ in range(10):
        restarted = replace(f.run, worker=uuid7())
        assert sweeps.make_due(restarted.db) == 0 and step(task, restarted).status == "nothing"
        assert sweeps.ring(restarted.db, "steps", 100, 0) == []
    due(f, task)
    workers = [replace(f.run, worker=uuid7()) for _ in range(4)]
    together(*[lambda w=w: step(task, w) for w in workers])
    assert f.drain(task) in ("done", "nothing") and f.row(task)["status"] == "done"
    assert f.kinds(task).count("Woke") == f.kinds(task).count("Finished") == 1


def test_b29_rows_that_are_due_tomorrow_are_rows_and_nothing_else(f: Fleet) -> None:
    task = f.open()
    assert f.drain(task) == "waiting"
    with f.run.db.connection() as connection:
        connection.execute(
            "INSERT INTO agent_tasks (id, tenant, agent, agent_version, status, waiting_for, state, state_version,"
            " due_at) SELECT gen_random_uuid(), tenant, agent, agent_version, status, waiting_for, state,"
            " state_version, clock_timestamp() + interval '1 day' FROM agent_tasks, generate_series(1, 20000)"
            " WHERE id = %s",
            (task,),
        )
        connection.execute("ANALYZE agent_tasks")
        plan = "".join(row[0] for row in connection.execute(f"EXPLAIN {sweeps.DUE}").fetchall())
    assert "agent_tasks_due" in plan, "a sweep looks at what is due, not at what is not"
    assert sweeps.make_due(f.run.db) == 0 and sweeps.ring(f.run.db, "steps", 100, 0) == []


def test_b30_a_retry_is_written_with_the_failure_so_no_death_loses_or_doubles_it(f: Fleet) -> None:
    def busy(request: ModelRequest) -> ModelReply:
        raise Transport("429")

    task = f.open()
    model = Counted(f.run.model, busy)
    failing = replace(f.run, model=model)
    assert step(task, failing).status == "waiting"
    assert f.row(task)["waiting_for"] == "retry" and f.row(task)["worker_id"] is None, "its worker may be killed now"
    assert step(task, failing).status == "nothing" and model.asked == 1
    due(f, task)
    again = [Counted(f.run.model) for _ in range(4)]
    together(*[lambda m=m: step(task, replace(f.run, worker=uuid7(), model=m)) for m in again])
    assert sum(m.asked for m in again) == 1


def test_b42_the_databases_clock_decides_and_a_worker_whose_clock_is_off_does_not_start(
    fresh_database: Any,
) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        assert 1190 < alive.skew(f.run.db, lambda: time() + 1200) < 1210
        host = Host(f.settings)
        host.clock = lambda: time() + 1200
        with pytest.raises(SystemExit):
            host.start(None)
        assert host.run is not None
        host.run.db.close()
        host.run.lanes.close()
        assert not f.one("SELECT count(*) FROM workers_alive")
        task = f.open()
        assert f.drain(task) == "waiting"
        call = f.state(task).call
        assert call is not None
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        with pytest.raises(Refused):
            f.operate.decide(task, call.seq, approved=True, by="ann")
