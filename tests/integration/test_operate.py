"""The operators' verbs: what they do to a task that is stopped, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import change, counted, once
from tests.harness import Fleet, fleet
from twelvefold import Budget, Done, Task, Text
from twelvefold.budget import Usage
from twelvefold.ports import ModelReply
from twelvefold.tool import Tool
from workers.operate import Refused


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


def quarantined(f: Fleet) -> str:
    """A task that killed three workers."""
    task = f.open()
    with f.run.db.connection() as connection:
        connection.execute("UPDATE agent_tasks SET attempts = 3 WHERE id = %s", (task,))
    assert f.drain(task) == "quarantined"
    return task


def refused(code: int) -> Any:
    """It is refused with this code."""
    return pytest.raises(Refused, check=lambda error: error.code == code)


def test_a_quarantined_task_can_be_cancelled(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        task = quarantined(f)
        assert f.operate.cancel(task, by="ann") == "cancelling"
        assert f.operate.cancel(task, by="bob") == "cancelling", "asked already"
        assert f.drain(task) == "cancelled"
        assert f.kinds(task).count("CancelAsked") == 1
        assert f.operate.cancel(task, by="bob") == "cancelled"


def test_a_cancel_after_a_quarantine_keeps_what_was_held(fresh_database: Any) -> None:
    broken = [True]

    def success(task: Task) -> str | None:
        if broken:
            raise KeyError("a bug")
        return None

    with fleet(fresh_database, done) as f:
        change(f, "notes", success=[success])
        model = counted(f)
        task = f.open()
        assert f.drain(task) == "quarantined"
        f.operate.cancel(task, by="ann")
        assert f.drain(task) == "cancelled", "even while the agent's code is still broken"
        assert model.asked == 1


def test_only_what_stands_still_can_be_retried(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = f.open()
        with refused(409):
            f.operate.retry(task, by="ann")
        assert f.drain(task) == "waiting"
        with refused(409):
            f.operate.retry(task, by="ann")
        f.operate.cancel(task, by="ann")
        f.drain(task)
        for verb in (f.operate.retry, f.operate.raise_budget):
            with refused(409):
                verb(task, by="ann")


def test_a_used_up_budget_waits_for_its_raise(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", budget=Budget(decisions=1))
        model = counted(f, lambda request: ModelReply(text="prose"))
        task = f.open()
        assert f.drain(task) == "waiting"
        assert f.row(task)["waiting_for"] == "budget"
        with refused(409):
            f.operate.retry(task, by="ann")
        model._reply = None
        f.operate.raise_budget(task, by="ann", decisions=5)
        assert f.drain(task) == "done"


def test_a_raise_with_a_key_adds_once_and_one_without_adds_each_time(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", budget=Budget(decisions=1))
        task = f.open()
        for _ in range(2):
            f.operate.raise_budget(task, by="ann", decisions=5, usd=Decimal("0.50"), key="k")
        f.operate.raise_budget(task, by="bob", decisions=7, key="k")
        with refused(409):
            f.operate.raise_budget(task, by="ann", decisions=6, key="k")
        for _ in range(2):
            f.operate.raise_budget(task, by="ann", tokens=10, active=timedelta(seconds=1))
        assert f.drain(task) == "done"
        assert f.state(task).extra == Usage(decisions=12, usd=Decimal("0.50"), tokens=20, active_ms=2000)
        f.operate.raise_budget(task, by="ann", decisions=5, usd=Decimal("0.50"), key="k")
        with refused(409):
            f.operate.raise_budget(task, by="ann", decisions=1)


def test_a_run_past_its_deadline_goes_on_when_a_later_one_is_set(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", budget=Budget(deadline=timedelta(hours=1)))
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute(
                "UPDATE agent_tasks SET state = state || jsonb_build_object("
                "'opened', 1, 'opened_at', clock_timestamp() - interval '2 hours') WHERE id = %s",
                (task,),
            )
        assert f.drain(task) == "waiting"
        assert f.row(task)["waiting_for"] == "budget"
        with refused(409):
            f.operate.raise_budget(task, by="ann", deadline=datetime.now(UTC) - timedelta(seconds=1))
        f.operate.raise_budget(task, by="ann", decisions=1)
        assert f.drain(task) == "waiting", "more decisions are no more time"
        end = datetime.now(UTC) + timedelta(hours=1)
        f.operate.raise_budget(task, by="ann", deadline=end)
        assert f.drain(task) == "done"
        assert f.state(task).ends_at == end
        f.intake.message(task, source="t", key="m", text="again", sender="ann")
        f.step(task)
        assert f.state(task).ends_at is None, "another run has an end of its own"


def test_a_retry_that_was_asked_for_already_is_the_same_retry(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        task = quarantined(f)
        for _ in range(3):
            f.operate.retry(task, by="ann", key="k")
            f.operate.retry(task, by="bob")
        assert f.drain(task) == "done"
        assert f.kinds(task).count("Resumed") == 1
        f.operate.retry(task, by="ann", key="k")
        with refused(409):
            f.operate.retry(task, by="bob")


def test_verbs_refuse_what_is_not_there_or_has_ended(fresh_database: Any) -> None:
    nobody = "018f0000-0000-7000-8000-000000000001"
    with fleet(fresh_database, done) as f:
        task = f.open()
        f.drain(task)
        with refused(409):
            f.operate.cancel(task, by="ann")
        for act in (
            lambda: f.operate.cancel(nobody, by="ann"),
            lambda: f.operate.pause(nobody),
            lambda: f.operate.resume(nobody),
            lambda: f.operate.retry(nobody, by="ann"),
            lambda: f.operate.settle(nobody, 1, how="not", by="ann"),
            lambda: f.operate.decide(nobody, 1, approved=True, by="ann"),
        ):
            with refused(404):
                act()
        for scope in ("notes", "task:1"):
            with refused(409):
                f.switches.freeze(scope, by="ann")
        with refused(409):
            f.switches.pause("tool:pay", by="ann")
        assert f.one("SELECT count(*) FROM switches") == 0


def test_a_paused_task_can_be_cancelled(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        task = f.open()
        f.operate.pause(task)
        assert f.step(task) == "nothing"
        f.operate.cancel(task, by="ann")
        assert f.drain(task) == "cancelled"


def test_a_persons_news_keeps_its_lane_until_the_task_rests(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        assert f.row(task)["lane"] == "steps"
        f.intake.message(task, source="test", key="m", text="hurry", sender="ann")
        lanes = []
        while f.step(task) != "nothing":
            lanes.append(f.row(task)["lane"])
        assert lanes == ["answers", "answers", "steps"]
