"""What tasks share: a day's money by tenant and agent, and the limits of the model's account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from console.cli import cli
from tests.hands import Counted, change, due, together
from tests.harness import NO_BROKER, Fleet, fleet
from twelvefold import Budget, Done, Task, Text
from twelvefold.errors import Fatal, Transport
from twelvefold.events import LimitReached, Throttled
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.tool import Tool
from workers.allowance import Daily, Limits
from workers.store import limits, spend
from workers.turnstile import Turnstile

LOOP = 200


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


def loops(request: ModelRequest) -> ModelReply:
    """A model that never ends: another topic each time, 1,000 tokens a call."""
    topic = json.dumps({"topic": f"t{len(request.user)}"})
    return ModelReply(calls=(ProposedCall("count_notes", topic),), tokens_in=900, tokens_out=100, model="m")


@contextmanager
def asking(database: Any, answer: Any, account: Limits | None = None, **change: Any) -> Iterator[tuple[Fleet, Counted]]:
    """A fleet whose model is no script: what it uses is charged."""
    with fleet(database, done, **change) as f:
        model = Counted(f.run.model, answer)
        turnstile = None if account is None else Turnstile(f.run.db, "a", account, Random(1), rest=lambda s: None)
        f.run = replace(f.run, model=model, scripted=False, turnstile=turnstile)
        yield f, model


def test_200_agents_that_loop_for_ever_overspend_by_no_more_than_the_calls_in_flight(fresh_database: Any) -> None:
    daily = {"agent:notes": Daily(tokens=60_000)}
    with asking(fresh_database, loops, daily=daily, db_pool=8) as (f, model):
        change(f, "notes", budget=Budget(decisions=100, usd=Decimal(100)))
        tasks = [f.open() for _ in range(LOOP)]
        lanes = [tasks[i::8] for i in range(8)]

        def run(mine: list[str]) -> None:
            live = list(mine)
            for _ in range(3):
                live = [task for task in live if f.step(task) != "nothing"]
                spend.roll_up(f.run.db)  # beside the others, as the sweep does

        results = together(*(lambda mine=mine: run(mine) for mine in lanes), within=110)
        assert not [each for each in results if isinstance(each, BaseException)]
        assert 60 <= model.asked <= 60 + 8, "one call for each that was in flight when it was used up"
        day = spend.today(f.run.db, "t1", "notes")
        assert day.agent.tokens == model.asked * 1_000, "nothing is counted twice, nothing is missed"
        waiting = f.one(
            "SELECT count(*) FROM agent_tasks WHERE waiting_for = 'budget' AND reason = 'budget agent:notes'"
        )
        assert waiting == LOOP, f.run.db.rows(
            "SELECT status, waiting_for, reason, count(*) FROM agent_tasks GROUP BY 1, 2, 3"
        )
        assert f.one("SELECT count(*) FROM spend_notices") == 1, "operators are told once a scope and day"


def test_a_days_budget_names_its_scope_and_dimension_and_ends_with_the_day_or_a_raise(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    price: dict[str, Any] = {"price_in": Decimal("1000"), "price_out": Decimal(0)}  # 0.90 USD a call
    with asking(fresh_database, loops, daily={"all": Daily(usd=Decimal("1.5"))}, **price) as (f, model):
        change(f, "notes", budget=Budget(decisions=100, usd=Decimal(100)))
        task, other = f.open(), f.open(tenant="t2")
        assert f.drain(task) == "waiting"
        assert model.asked == 2, "a call that is paid for is carried out; the next one is not made"
        (reached,) = [event for event in f.events(task) if isinstance(event, LimitReached)]
        assert (reached.scope, reached.dimension, reached.used, reached.limit) == ("all", "usd", "1.8", "1.5")
        row = f.row(task)
        assert (row["waiting_for"], row["reason"], row["due_at"]) == ("budget", "budget all", reached.until)
        assert f.step(other) == "ready", "another tenant has a day of its own"

        for name, value in {"DATABASE_URL": fresh_database.app, "BROKER_URL": NO_BROKER}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AGENT_MODULES", "tests.agents")
        arguments = ["raise", "all", "--tenant", "t1", "--usd", "1", "--json", "--home", str(tmp_path)]
        assert json.loads(CliRunner().invoke(cli, arguments).output)["going_on"] == 1
        assert f.drain(task) == "waiting"
        assert model.asked == 4, "one more dollar is one more call, and the one that was begun"

        with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute("UPDATE spend_days SET day = day - 1")
            owner.execute("UPDATE spend SET day = day - 1")
        due(f, task)
        assert f.step(task) == "ready", "a new day"
        assert model.asked == 5


def test_a_call_beyond_the_limits_waits_as_a_task_and_counts_as_no_failure(fresh_database: Any) -> None:
    account = Limits(requests_per_minute=10)
    with asking(fresh_database, loops, account) as (f, model):
        change(f, "notes", budget=Budget(decisions=100, usd=Decimal(100)))
        first, second = f.open(), f.open()
        assert f.step(first) == "ready"
        assert f.step(second) == "waiting" and model.asked == 1
        row, state = f.row(second), f.state(second)
        assert (row["waiting_for"], row["attempts"], state.transport, state.failures) == ("retry", 0, 0, 0)
        assert [type(event) for event in f.events(second)][-1] is Throttled
        assert "Throttled" not in model.prompts[0]
        with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute("UPDATE model_limits SET at = at - interval '7 seconds'")
        due(f, second)
        assert f.step(second) == "ready" and model.asked == 2


def test_no_window_sees_more_than_the_limit_whatever_is_asked(fresh_database: Any) -> None:
    """The bucket by itself, its time moved in the row; what the statements themselves took is counted too."""
    holds, rates = zip(*Limits(requests_per_second=10, tokens_per_minute=10_000).buckets(), strict=True)
    assert holds[0] + rates[0] == 10 and holds[3] + 60 * rates[3] == 10_000
    with fleet(fresh_database, done) as f, psycopg.connect(fresh_database.owner.replace("+psycopg", "")) as owner:
        owner.autocommit = True
        for needs, place, times, step in (((1.0, 1.0, 0.0, 0.0), 0, 40, 0.1), ((0.0, 0.0, 100.0, 100.0), 3, 60, 1.0)):
            owner.execute("DELETE FROM model_limits")
            begun, let = monotonic(), 0.0
            for _ in range(times):
                let += needs[place] * sum(limits.take(f.run.db, "a", needs, holds, rates, 0.0) == 0 for _ in range(12))
                owner.execute("UPDATE model_limits SET at = at - make_interval(secs => %s)", (step,))
            went_by = (times - 1) * step + monotonic() - begun
            assert let <= holds[place] + rates[place] * went_by + needs[place]
            assert let >= 0.8 * rates[place] * (times - 1) * step, "and what is allowed is let through"


def test_b74_a_spent_quota_is_met_by_one_task_and_not_by_a_hundred(fresh_database: Any) -> None:
    def broke(request: ModelRequest) -> ModelReply:
        raise Fatal("no quota", code="quota")

    with asking(fresh_database, broke, Limits()) as (f, model):
        change(f, "notes", budget=Budget(usd=Decimal(100)))
        tasks = [f.open() for _ in range(40)]
        for task in tasks:
            assert f.step(task) == "waiting"
        assert model.asked == 1, "nobody's call would do better"
        parked = f.one("SELECT count(*) FROM agent_tasks WHERE waiting_for = 'operator' AND reason = 'quota'")
        assert (parked, f.one("SELECT count(*) FROM agent_tasks WHERE waiting_for = 'retry'")) == (1, 39)
        model._reply = loops
        with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute("UPDATE model_limits SET closed_until = clock_timestamp()")
        for task in tasks[1:6]:
            due(f, task)
        assert f.step(tasks[1]) == "ready", "the first one looks, and the door is open again for all"
        assert [f.step(task) for task in tasks[2:6]] == ["ready"] * 4


def test_b76_in_an_outage_the_fleet_asks_no_more_than_one_task_would(fresh_database: Any) -> None:
    def down(request: ModelRequest) -> ModelReply:
        raise Transport("503", kind="server")

    with asking(fresh_database, down, Limits()) as (f, model):
        tasks = [f.open() for _ in range(30)]
        for task in tasks:
            f.step(task)
        assert model.asked == 10, "then the door is shut for everybody"
        with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute("UPDATE model_limits SET closed_until = clock_timestamp()")
            owner.execute(
                "UPDATE agent_tasks SET status = 'ready',"
                " state = jsonb_set(state, '{due}', to_jsonb(now() - '1 s'::interval))"
            )
        for task in tasks[10:20]:
            f.step(task)
        assert model.asked == 11, "one looks whether it is over"
