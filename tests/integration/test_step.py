"""The step on a real database: what one commit writes, and what it refuses to write."""

from __future__ import annotations

from typing import Any

from tests.agents.notes.tools import CountNotes, KeepNote
from tests.harness import fleet
from twelvefold import Done, Task, Text
from twelvefold.testing import replay
from twelvefold.tool import Tool
from workers.store import log


def keep_then_done(task: Task) -> Tool[Any]:
    """Keep the message once, then finish."""
    if not task.did(KeepNote):
        return KeepNote(text=task.event.text)
    return Done(outcome=Text(text="kept"))


def test_a_write_and_its_event_are_one_commit(fresh_database: Any) -> None:
    with fleet(fresh_database, keep_then_done) as f:
        task = f.open(text="Buy milk")
        assert f.drain(task) == "done"
        assert f.kinds(task) == [
            "Arrived", "ModelAsked", "Decided", "Returned", "ModelAsked", "Decided", "Finished",
        ]  # fmt: skip
        assert f.one("SELECT text FROM notes") == "Buy milk"
        row = f.row(task)
        assert (row["status"], row["current_step"], row["inbox_pending"], row["seq"]) == ("done", 3, 0, 7)
        letters = f.run.db.rows("SELECT channel, recipient, n, state FROM outbox ORDER BY n")
        assert [(x["channel"], x["n"], x["state"]) for x in letters] == [("log", 1, "pending"), ("email", 2, "pending")]


def test_the_log_folds_to_the_stored_state_where_one_commit_holds_events_of_several_times(fresh_database: Any) -> None:
    with fleet(fresh_database, keep_then_done) as f:
        task = f.open(text="Buy milk")
        assert f.step(task) == "ready"
        assert [recorded.event.__class__.__name__ for recorded in log.events(f.run.db, task)] == [
            "Arrived", "ModelAsked", "Decided",
        ], "one commit: what was absorbed, and later what the model said"  # fmt: skip
        assert replay(log.events(f.run.db, task), task_id=task, tenant="t1") == f.state(task)
        assert f.drain(task) == "done"
        assert replay(log.events(f.run.db, task), task_id=task, tenant="t1") == f.state(task)


def test_a_read_repeats_nothing_and_writes_only_its_event(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        return (
            CountNotes(topic="milk")
            if not task.did(CountNotes)
            else Done(outcome=Text(text=str(task.last(CountNotes))))
        )

    with fleet(fresh_database, script) as f:
        task = f.open()
        assert f.drain(task) == "done"
        assert f.row(task)["outcome"] == {"text": "0"}
