"""How long it takes from an outside event to the commit of the task it wakes, among many that wait."""

from __future__ import annotations

import random
from statistics import median
from time import perf_counter
from typing import Any

import pytest

from tests.harness import Fleet, fleet
from twelvefold import Done, Task, Text, Wait
from twelvefold.tool import Tool
from workers.ids import uuid7
from workers.store import sweeps

WAKES = 50
AMONG = [
    pytest.param(500, id="500"),
    pytest.param(10_000, id="10000", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]


def waits(task: Task) -> Tool[Any]:
    """Wait for the parcel of the message, then be done."""
    return Done(outcome=Text(text="here")) if task.did(Wait) else Wait(why="x", event=f"parcel {task.event.text}")


def many(f: Fleet, count: int) -> None:
    """So many tasks that wait, each for a parcel of its own: copies of one that came there step by step."""
    first = f.open(text="0")
    assert f.drain(first) == "waiting"
    with f.run.db.transaction() as connection:
        connection.execute("CREATE TEMPORARY TABLE copies (id uuid, n int) ON COMMIT DROP")
        with connection.cursor().copy("COPY copies FROM STDIN") as copy:
            for n in range(1, count):
                copy.write_row((uuid7(), n))
        connection.execute(
            "INSERT INTO agent_tasks (id, tenant, agent, agent_version, status, waiting_for, state, state_version,"
            " seq, current_step, wait_key)"
            " SELECT c.id, tenant, agent, agent_version, status, waiting_for,"
            " state || jsonb_build_object('id', c.id, 'wait_key', 'parcel ' || n), state_version, seq, current_step,"
            " 'parcel ' || n FROM agent_tasks t, copies c WHERE t.id = %s",
            (first,),
        )
        connection.execute(
            "INSERT INTO agent_events (task_id, seq, type, version, at, data, salt, hash, writer)"
            " SELECT c.id, seq, type, version, at, data, salt, hash, writer FROM agent_events e, copies c"
            "  WHERE e.task_id = %s",
            (first,),
        )


@pytest.mark.parametrize("count", AMONG)
def test_one_of_many_waiting_tasks_wakes_quickly_and_alone(fresh_database: Any, count: int) -> None:
    with fleet(fresh_database, waits) as f:
        many(f, count)
        dice, took = random.Random(12), []
        for n in dice.sample(range(1, count), WAKES):
            began = perf_counter()
            woken = f.intake.event("t1", f"parcel {n}", source="post", key=f"e{n}", payload={"n": n}).task_id
            assert woken is not None
            assert f.step(woken) == "done"
            took.append(1000 * (perf_counter() - began))
        print(f"\nwaking one of {count:,} waiting tasks: median {median(took):.1f} ms, slowest {max(took):.1f} ms")
        waiting = f.one("SELECT count(*) FROM agent_tasks WHERE status = 'waiting'")
        assert waiting == count - WAKES, "the others wait on"
        assert sweeps.ring(f.run.db, "steps", 100, 0) == [], "and nothing of them is in a lane"
        if count >= 10_000:
            assert median(took) < 100
