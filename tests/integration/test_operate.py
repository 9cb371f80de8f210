"""The operators' verbs: what they do to a task that is stopped, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import change, counted, once
from tests.harness import Fleet, fleet
from twelvefold import Budget, Done, Task, Text
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
                f.operate.freeze(scope, by="ann")
        with refused(409):
            f.operate.pause_scope("tool:pay", by="ann")
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
