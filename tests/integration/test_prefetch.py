"""Prefetch in a step: side by side, with a time limit, and never in the way of the run."""

from __future__ import annotations

from threading import Barrier, Event
from typing import Any

import pytest
from sqlalchemy import text

from tests.callers import callers
from tests.hands import change, counted
from tests.harness import fleet
from twelvefold import Ctx, Done, Task, Text, ToolError
from twelvefold.events import ModelAsked, Prefetched
from workers import prefetch


def done(task: Task) -> Any:
    """The end at once."""
    return Done(outcome=Text(text="ok"))


def rows(ctx: Ctx) -> int:
    """Look into the database."""
    with ctx.db() as db:
        return int(db.scalar(text("SELECT count(*) FROM notes")) or 0)


def about(ctx: Ctx) -> dict[str, str]:
    """Look at the event."""
    return {"text": ctx.task.event.text}


def told(ctx: Ctx) -> None:
    """Fail with a word for the model."""
    raise ToolError("no such order")


def broken(ctx: Ctx) -> None:
    """Fail without one."""
    raise RuntimeError("password=secret")


def looked(f: Any, task: str) -> Prefetched:
    """The one event of the look, which stands before the model was asked."""
    kinds = f.kinds(task)
    assert kinds.count("Prefetched") == 1 and kinds.index("Prefetched") < kinds.index("ModelAsked")
    return next(e for e in f.events(task) if isinstance(e, Prefetched))


def test_what_is_found_and_what_fails_is_one_event_and_the_run_goes_on(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", prefetch=[rows, told, about, broken])
        task = f.open(text="milk")
        assert f.drain(task) == "done"
        event = looked(f, task)
        assert event.found == {"rows": 0, "about": {"text": "milk"}}
        assert event.failed == {"told": "no such order", "broken": "RuntimeError"}
        assert "secret" not in f.one("SELECT string_agg(data::text, '') FROM agent_events")
        asked = next(e for e in f.events(task) if isinstance(e, ModelAsked))
        receipt: Any = asked.receipt
        assert [seq for seq, _ in receipt["whole"]] == [1, 2], "the model saw the event and the look"


def test_looks_run_side_by_side(fresh_database: Any) -> None:
    both = Barrier(2, timeout=5)

    def one(ctx: Ctx) -> int:
        return both.wait() * 0 + 1

    def two(ctx: Ctx) -> int:
        return both.wait() * 0 + 2

    with fleet(fresh_database, done) as f:
        change(f, "notes", prefetch=[one, two])
        task = f.open()
        assert f.drain(task) == "done"
        assert looked(f, task).found == {"one": 1, "two": 2}


def test_a_look_that_takes_too_long_is_left_behind(fresh_database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "LOOK_S", 0.05)
    gate = Event()

    def slow(ctx: Ctx) -> str:
        gate.wait(30)
        return "late"

    with fleet(fresh_database, done) as f:
        change(f, "notes", prefetch=[slow, rows])
        task = f.open()
        try:
            assert f.drain(task) == "done"
        finally:
            gate.set()
        assert looked(f, task).failed["slow"] == "took longer than 0.05 s"


def test_a_value_without_a_canonical_form_is_told(fresh_database: Any) -> None:
    def share(ctx: Ctx) -> float:
        return 0.1

    with fleet(fresh_database, done) as f:
        change(f, "notes", prefetch=[share])
        task = f.open()
        assert f.drain(task) == "done"
        assert looked(f, task).failed == {"share": "TypeError"}


def test_a_thread_without_a_message_is_looked_up_before_anything_is_asked(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", prefetch=[rows])
        model = counted(f)
        with callers(f) as api:
            found = api.post("/thread", {"agent": "notes"})
            assert found.status_code == 202
            task = found.json()["thread_id"]
            assert f.drain(task) == "done"
            event = looked(f, task)
            assert event.found == {"rows": 0} and event.at is not None
            assert f'as_of="{event.at.isoformat(timespec="seconds")}"' in model.prompts[0], "and it says as of when"
            nothing = api.post("/thread", {"agent": "refunds"})
            assert nothing.status_code == 400, "an agent that looks nothing up has nothing to begin with"
            assert f.one("SELECT count(*) FROM agent_tasks") == 1
