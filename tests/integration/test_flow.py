"""Limits on a real database: never more than they say, whoever claims and dies; what is held back waits and is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.hands import change, together
from tests.harness import Fleet, fleet
from twelvefold import Done, Flow, Task, Text
from twelvefold.tool import Tool
from workers.ids import uuid7
from workers.step import claim, step
from workers.store import alive, claims, rings, slots
from workers.store.claims import Claimed
from workers.work import Work

from .test_cli_look import Verb, verb

__all__ = ["verb"]


def done(task: Task) -> Tool[Any]:
    """Be done at once."""
    return Done(outcome=Text(text="x"))


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents are done at once."""
    with fleet(fresh_database, done, db_pool=16) as found:
        yield found


def taken(f: Fleet, task: str) -> Work | None:
    return claim(task, f.run)


def held(work: Work | None) -> Claimed:
    assert work is not None
    return work.held


def rung(f: Fleet, most: int = 100, tenant: int | None = None) -> list[str]:
    """Whom a sweep rings now."""
    return [task for task, _ in rings.ring(f.run.db, "steps", most, 5, f.run.registry.flows.rules, tenant)]


def told(f: Fleet, task: str, tenant: int | None = None) -> list[str]:
    return [row["limit"] for row in slots.held_by(f.run.db, task, f.run.registry.flows.under(tenant))]


def test_an_agents_steps_at_once_are_never_more_than_its_limit_in_each_tenant(f: Fleet) -> None:
    change(f, "notes", flow=Flow(concurrency=2))
    mine, other, free = [f.open() for _ in range(4)], f.open(tenant="t2"), f.open("refunds")
    first, second = held(taken(f, mine[0])), held(taken(f, mine[1]))
    assert taken(f, mine[2]) is None and told(f, mine[2]) == ["agent notes: 2 steps at once"]
    assert f.row(mine[2])["attempts"] == f.row(mine[2])["fence"] == 0 and f.row(mine[2])["nudged_at"] is None
    assert held(taken(f, other)) and held(taken(f, free)), "another tenant and another agent are free"
    claims.release(f.run.db, first, soon=True)
    assert told(f, mine[2]) == []
    third = held(taken(f, mine[2]))
    assert taken(f, mine[3]) is None
    f.operate.cancel(mine[3], by="ann")
    assert f.drain(mine[3]) == "cancelled", "an end needs no slot"
    change(f, "notes", flow=Flow(concurrency=1))
    claims.release(f.run.db, second, soon=True)
    assert taken(f, mine[0]) is None, "a limit that was lowered counts what goes on"
    claims.release(f.run.db, third, soon=True)
    assert [f.drain(task) for task in mine[:3]] == ["done"] * 3
    assert f.one("SELECT count(*) FROM slots WHERE scope = 'agent notes' AND tenant = 't1'") == 2


def test_a_death_frees_the_slot_with_the_claim(f: Fleet) -> None:
    change(f, "notes", flow=Flow(concurrency=1))
    first, second = f.open(), f.open()
    dead = uuid7()
    alive.register(f.run.db, dead, {"steps": 1}, "{}")
    assert claim(first, replace(f.run, worker=dead)) and taken(f, second) is None
    with f.run.db.connection() as connection:
        connection.execute("UPDATE workers_alive SET heartbeat = heartbeat - interval '1 min' WHERE id = %s", (dead,))
    assert alive.free_dead(f.run.db, 8) == 1
    assert f.drain(second) == "done" and f.drain(first) == "done"


def test_claims_at_one_moment_never_exceed_a_limit(f: Fleet) -> None:
    change(f, "notes", flow=Flow(concurrency=3, key=lambda m: m.text, per_key=1))
    tasks = [f.open(text=str(n % 4)) for n in range(24)]
    dice, seen = Random(3), []

    def go(mine: list[str]) -> int:
        steps = 0
        for _ in range(12):
            task = dice.choice(mine)
            work = claim(task, replace(f.run, worker=UUID(int=dice.getrandbits(128), version=4)))
            if work is not None:
                row = f.run.db.rows(
                    "SELECT count(*) AS n, coalesce(max(c), 0) AS most FROM (SELECT flow_key, count(*) OVER"
                    " (PARTITION BY flow_key) AS c FROM agent_tasks WHERE worker_id IS NOT NULL) x"
                )[0]
                seen.append((row["n"], row["most"]))
                claims.release(f.run.db, work.held, soon=True)
                steps += 1
        return steps

    counts = together(*[lambda n=n: go(tasks[n::8]) for n in range(8)])
    assert not [each for each in counts if isinstance(each, Exception)], counts
    assert sum(counts) > 8 and max(n for n, _ in seen) <= 3 and max(most for _, most in seen) == 1
    assert f.one("SELECT count(*) FROM slots WHERE scope LIKE 'key%%'") == 4
    assert f.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


def test_a_rate_lets_so_many_tasks_begin_and_what_has_begun_go_on(f: Fleet) -> None:
    change(f, "notes", flow=Flow(rate="2/1h"))
    tasks = [f.open() for _ in range(3)]
    died = held(taken(f, tasks[0]))
    claims.release(f.run.db, died, soon=True)
    assert [f.drain(task) for task in tasks] == ["done", "done", "nothing"], "who began anew has begun once"
    assert told(f, tasks[2]) == ["rate notes: 2 tasks begin within 3600 s"] and rung(f) == []
    f.intake.message(tasks[0], source="t", key="more", text="more", sender="ann", proof="x")
    assert f.drain(tasks[0]) == "done", "a new run is no new task"
    with f.run.db.connection() as connection:
        connection.execute("UPDATE slots SET until = clock_timestamp() WHERE n = 1")
    assert told(f, tasks[2]) == [] and rung(f) == [tasks[2]]
    assert f.drain(tasks[2]) == "done"


def test_only_what_may_go_on_is_rung_and_the_key_that_is_busy_does_not_hold_up_the_others(f: Fleet) -> None:
    change(f, "notes", flow=Flow(concurrency=3, key=lambda m: m.text, priority=lambda m: 9 if m.text == "vip" else 0))
    busy = [f.open(text="busy") for _ in range(20)]
    a, b, vip = f.open(text="a"), f.open(text="b"), f.open(text="vip")
    free = f.open("refunds")
    assert f.row(vip)["priority"] == 9
    assert set(rung(f)) == {vip, busy[0], a, free}
    assert rung(f) == [], "told of, they take what there is"
    assert f.drain(vip) == "done" and rung(f) == [b]
    assert f.drain(busy[0]) == "done" and set(rung(f)) == {busy[1]}
    other = [f.open("refunds", tenant="t2") for _ in range(5)]
    assert len(rung(f, tenant=2)) == 2 and len(set(rung(f)) & set(other)) == 3


def test_a_tenants_steps_at_once_are_never_more_than_the_operator_allows(f: Fleet) -> None:
    run = replace(f.run, settings=f.run.settings.model_copy(update={"tenant_concurrency": 1}))
    first, second, other = f.open(), f.open("refunds"), f.open(tenant="t2")
    assert claim(first, run) and claim(second, run) is None and claim(other, run)
    assert told(f, second, tenant=1) == ["tenant: 1 steps at once"]
    assert step(second, f.run).status == "done", "unlimited unless set"


def test_why_nothing_happens_is_told_with_the_arrival_and_the_task(f: Fleet, verb: Verb, monkeypatch: Any) -> None:
    change(f, "notes", flow=Flow(rate="1/1h"))
    monkeypatch.setattr("workers.registry.load", lambda modules: f.run.registry)
    first, second = f.open(), f.open()
    assert f.drain(first) == "done"
    assert "held by rate notes: 1 tasks begin within 3600 s" in verb("arrivals")[1]
    code, text = verb("show", second)
    assert code == 0 and "held by   the limit rate notes: 1 tasks begin within 3600 s; 1 are taken, there is" in text
    f.switches.stop_intake("agent:notes", by="ann")
    rows = json.loads(verb("arrivals", "--json")[1])
    assert rows[0]["held_by"] == ["intake of agent:notes", "rate notes: 1 tasks begin within 3600 s"]
    assert rows[1]["held_by"] == []
