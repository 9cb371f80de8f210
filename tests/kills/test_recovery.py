"""How soon work goes on after a kill, and that a hundred kills never pay twice."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg
import pytest

from console.embedded import Valkey
from tests.fakes.openai_server import Answer, tool_call
from tests.kills.processes import SHIPPED, Worker, World, decide, world

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

WATCH = """
CREATE TABLE claims_seen (task_id uuid, fence bigint, worker_id uuid, at timestamptz DEFAULT clock_timestamp());
GRANT INSERT, SELECT ON claims_seen TO twelvefold_app;
CREATE FUNCTION see_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO claims_seen (task_id, fence, worker_id) VALUES (NEW.id, NEW.fence, NEW.worker_id);
    RETURN NULL;
END $$;
CREATE TRIGGER see_claim AFTER UPDATE ON agent_tasks FOR EACH ROW
    WHEN (OLD.fence IS DISTINCT FROM NEW.fence) EXECUTE FUNCTION see_claim();
"""


@pytest.fixture
def w(fresh_database: Any, valkey: Valkey) -> Iterator[World]:
    """A world whose claims are written down with the database's clock."""
    valkey.start()
    with world(fresh_database, valkey) as made:
        with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute(WATCH)
        yield made


def slow_victims(request: dict[str, Any]) -> Answer:
    """A victim's model takes four seconds for a decision; everyone else's is instant."""
    seen = request["messages"][-1]["content"]
    if "victim" not in seen:
        return decide(request)
    time.sleep(4)
    return tool_call("keep_note", {"text": f"victim {seen.count('<decided')}"})


Kill = tuple[str, int, Any]
"""A task that lost its worker, its fence then, and the database's time of the kill."""


def kill_a_holder(w: World, mortal: list[Worker]) -> Kill | None:
    """SIGKILL a worker that holds a victim's claim; None when none of these holds one now."""
    living = {worker.process.pid: worker for worker in mortal if worker.process.poll() is None}
    for row in w.fleet.run.db.rows(
        "SELECT t.id::text, t.fence, a.pid FROM agent_tasks t JOIN workers_alive a ON a.id = t.worker_id"
        " JOIN arrivals r ON r.task_id = t.id AND r.kind = 'message' WHERE t.status = 'ready'"
        " AND r.payload ->> 'text' LIKE 'victim%%' AND t.attempts = 1 ORDER BY random()"
    ):
        if row["pid"] in living:
            living[row["pid"]].kill()
            return row["id"], row["fence"], w.one("SELECT clock_timestamp()")
    return None


def measure(w: World, kills: int) -> list[float]:
    """Seconds from each SIGKILL to the next claim of a task that the dead worker held, by the database's clock.

    Two workers live through it, as a fleet is more than the one that dies; two more are killed and replaced.
    """
    w.model.script(slow_victims)
    lasting = [w.worker(env=SHIPPED) for _ in range(2)]
    beats = "SELECT min(heartbeat - started_at) > interval '11 s' FROM workers_alive"
    w.until(lambda: w.one(beats) is True, 60)
    mortal = [w.worker(env=SHIPPED) for _ in range(2)]
    victims = [w.fleet.open("notes", f"victim {n}") for n in range(8)]
    for task in victims:
        w.fleet.operate.raise_budget(task, by="test", decisions=40, tokens=10**7)
    others = [w.fleet.open("refunds", f"pay_again ord_{n} 5 {w.port}") for n in range(8)]
    killed: list[Kill] = []

    def kill() -> bool:
        one = kill_a_holder(w, mortal)
        killed.extend([one] if one else [])
        return one is not None

    for _ in range(kills):
        w.until(kill, 60)
        mortal = [worker for worker in mortal if worker.process.poll() is None]
        mortal.append(w.worker(env=SHIPPED))
    took = [_until_claimed(w, *one) for one in killed]
    for task in others:
        w.until_status(task, "done", 60)
    assert all(worker.process.poll() is None for worker in lasting)
    return took


def _until_claimed(w: World, task: str, fence: int, at: Any) -> float:
    sql = "SELECT extract(epoch FROM min(at) - %(at)s)::float8 FROM claims_seen WHERE task_id = %(t)s AND fence > %(f)s"
    w.until(lambda: w.one(sql, t=task, f=fence, at=at) is not None, 30)
    return float(w.one(sql, t=task, f=fence, at=at))


def test_work_goes_on_within_ten_seconds_of_a_kill(w: World) -> None:
    took = measure(w, 2)
    assert max(took) <= 10, took


@pytest.mark.long
def test_fifty_kills_with_others_running_each_recover_within_ten_seconds(w: World) -> None:
    took = measure(w, 50)
    print(f"recovery after SIGKILL: median {statistics.median(took):.1f} s, longest {max(took):.1f} s, of {len(took)}")
    assert len(took) == 50
    assert max(took) <= 10, sorted(took)


def story(w: World, kills: int, seed: int) -> None:
    """Refunds of all three kinds while workers die at random moments: nothing is paid twice, nothing is lost."""
    dice = random.Random(seed)
    kinds = ["pay", "pay_again", "pay_and_look"]
    w.service.slow(0.15)
    workers: list[Worker] = [w.worker(ready=False) for _ in range(2)]
    tasks, number = [], 0
    for _ in range(kills):
        for _ in range(3):
            tasks.append(w.pay(kinds[number % 3], f"ord_{number}"))
            number += 1
        pid = workers[0].process.pid
        w.until(lambda pid=pid: w.one("SELECT count(*) FROM workers_alive WHERE pid = %(p)s", p=pid) > 0)  # type: ignore[misc]
        time.sleep(dice.uniform(0, 1.2))
        workers.pop(0).kill()
        workers.append(w.worker(ready=False))
    w.until(lambda: all(at_rest(w, task) for task in tasks), 180)
    for task in tasks:
        check_paid(w, task)
    paid = w.one("SELECT count(*) FROM refunds")
    assert paid == len(set(w.service.effects)) - unsettled(w, tasks) and paid > len(tasks) // 3


def unsettled(w: World, tasks: list[str]) -> int:
    """How many effects happened whose tasks still wait for a person to say so."""
    waiting = [w.fleet.state(task).call for task in tasks if w.status(task) == "waiting/settle"]
    return sum(call is not None and call.key in w.service.effects for call in waiting)


def at_rest(w: World, task: str) -> bool:
    """Whether it is paid or waits for a person; a task that three workers died with is let go on by an operator."""
    status = w.status(task)
    if status == "quarantined":
        w.fleet.operate.retry(task, by="somebody")
    return status in ("done", "waiting/settle")


def check_paid(w: World, task: str) -> None:
    """One business row exactly where there was one effect for its key, or it waits to be settled.

    A worker that died after Begin and before the request left is found out by `find`: nothing happened, and no row.
    """
    call = w.fleet.state(task).call
    keys = {e.key for e in w.fleet.events(task) if type(e).__name__ == "Started"}  # type: ignore[attr-defined]
    assert len(keys) == 1
    rows = w.one("SELECT count(*) FROM refunds WHERE key = %(key)s", key=next(iter(keys)))
    if w.status(task) == "waiting/settle":
        assert call is not None and call.phase == "doubt" and rows == 0
    else:
        paid = keys <= set(w.service.effects)
        assert rows == paid, "what was paid is written down once, and nothing else is"
        assert paid or "Settled" in w.fleet.kinds(task)


def test_the_refund_story(w: World) -> None:
    story(w, kills=6, seed=12)


@pytest.mark.long
def test_the_refund_story_with_a_hundred_kills(w: World) -> None:
    story(w, kills=100, seed=1)


def waiting_costs_nothing(w: World, tasks: int) -> None:
    """A worker with many waiting tasks is as big as one with none, and neither broker nor database notices them."""
    empty = w.worker()
    size = psutil.Process(empty.process.pid).memory_info().rss
    with w.fleet.run.db.connection() as connection:
        connection.execute(
            "INSERT INTO agent_tasks"
            " (id, tenant, agent, agent_version, status, waiting_for, state, state_version, due_at)"
            " SELECT gen_random_uuid(), 't', 'notes', 'v', 'waiting', 'timer', '{\"status\": \"waiting\"}', 1,"
            " clock_timestamp() + interval '1 day' FROM generate_series(1, %s)",
            (tasks,),
        )
        connection.execute("ANALYZE agent_tasks")
    began = w.one("SELECT clock_timestamp()")
    beats = "SELECT count(*) FROM workers_alive WHERE heartbeat > %(t)s::timestamptz + interval '3 s'"
    w.until(lambda: w.one(beats, t=began) == 1)
    assert psutil.Process(empty.process.pid).memory_info().rss <= size * 1.05
    assert all(w.fleet.run.lanes.client.llen(f"{w.prefix}.{lane}") == 0 for lane in ("steps", "answers", "delivery"))
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
    assert w.one(idle) == 0


def test_a_thousand_waiting_tasks_cost_nothing(w: World) -> None:
    waiting_costs_nothing(w, 1_000)


@pytest.mark.long
def test_ten_thousand_waiting_tasks_cost_nothing(w: World) -> None:
    waiting_costs_nothing(w, 10_000)
