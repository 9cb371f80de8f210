"""When the model fails: waited for by the clock of the database, parked, taught; and several calls in one reply."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from tests.agents.notes.tools import CountNotes, KeepNote
from tests.hands import change, counted, due, once, owner
from tests.harness import Fleet, fleet
from twelvefold import Budget, Done, Fatal, Read, Task, Text
from twelvefold.errors import Transport
from twelvefold.events import Failed, Finished, ModelAsked, Rejected
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.tool import Tool
from workers.store import sweeps


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


def reply(*calls: tuple[str, str], **more: Any) -> ModelReply:
    """A model's reply with these calls."""
    return ModelReply(calls=tuple(ProposedCall(name, arguments) for name, arguments in calls), **more)


def failures(f: Fleet, task: str) -> list[Failed]:
    """The failures in the log."""
    return [event for event in f.events(task) if isinstance(event, Failed)]


def test_transport_is_tried_five_times_by_the_clock_then_parked_and_retry_goes_on(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:

        def down(request: ModelRequest) -> ModelReply:
            raise Transport("no answer", kind="timeout")

        model = counted(f, down)
        task = f.open()
        for attempt in range(1, 5):
            assert f.step(task) == "waiting"
            row = f.row(task)
            assert row["waiting_for"] == "retry"
            failure = failures(f, task)[-1]
            assert failure.not_before == row["due_at"]
            longest = timedelta(seconds=min(60, 2 ** (attempt - 1)) + 1)
            assert failure.not_before is not None
            assert failure.not_before - datetime.now(UTC) < longest
            assert f.step(task) == "nothing", "nobody sleeps and nobody asks before its time"
            due(f, task)
        assert f.drain(task) == "waiting"
        row = f.row(task)
        assert (row["waiting_for"], row["due_at"], row["reason"]) == ("operator", None, "timeout")
        assert model.asked == 5
        assert sweeps.make_due(f.run.db) == 0
        model._reply = None
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"


def test_what_the_endpoint_says_about_when_is_honoured(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:

        def busy(request: ModelRequest) -> ModelReply:
            raise Transport("too many", retry_after=300, kind="rate_limit")

        counted(f, busy)
        task = f.open()
        assert f.step(task) == "waiting"
        wait = f.one("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM agent_tasks")
        assert 295 < wait <= 300


def test_a_message_does_not_shorten_a_back_off(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:

        def busy(request: ModelRequest) -> ModelReply:
            raise Transport("too many", retry_after=300, kind="rate_limit")

        model = counted(f, busy)
        task = f.open()
        f.step(task)
        before = f.row(task)["due_at"]
        f.intake.message(task, source="test", key="m", text="well?", sender="ann")
        assert f.drain(task) == "waiting"
        assert (f.row(task)["due_at"], model.asked) == (before, 1)


def test_what_no_model_can_mend_parks_with_its_code(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:

        def fatal(request: ModelRequest) -> ModelReply:
            raise Fatal("the key is no key", code="auth")

        model = counted(f, fatal)
        task = f.open()
        assert f.drain(task) == "waiting"
        row = f.row(task)
        assert (row["waiting_for"], row["reason"], model.asked) == ("operator", "auth", 1)


@pytest.mark.parametrize("then", ["operator", "failed"])
def test_two_unusable_replies_in_a_row_end_as_the_agent_says(fresh_database: Any, then: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", on_stuck=then)
        model = counted(f, lambda request: ModelReply(text="Let me think."))
        task = f.open()
        assert f.drain(task) == ("waiting" if then == "operator" else "failed")
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Rejected", "ModelAsked", "Rejected", "Stuck"] + (
            [] if then == "operator" else ["Finished"]
        )
        assert model.asked == 2


def test_several_reads_of_one_reply_run_in_order_inside_one_step(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        model = counted(f)
        model._reply = lambda request: reply(
            ("count_notes", '{"topic": "a"}'), ("count_notes", '{"topic": "b"}'), ("count_notes", '{"topic": "c"}')
        )
        task = f.open()
        assert f.step(task) == "ready"
        assert f.row(task)["current_step"] == 1
        assert f.kinds(task) == ["Arrived", "ModelAsked", *["Decided", "Returned"] * 3]
        asked = [e.args for e in f.events(task) if type(e).__name__ == "Decided"]  # type: ignore[attr-defined]
        assert [text[-3] for text in asked] == ["a", "b", "c"]
        assert f.state(task).used.decisions == 1
        model._reply = None
        assert f.drain(task) == "done"


@pytest.mark.parametrize(
    "second",
    [("keep_note", '{"text": "x"}'), ("done", '{"outcome": {"text": "x"}}'), ("wait", '{"why": "x", "seconds": 5}')],
)
def test_several_calls_that_do_more_than_read_are_rejected_and_none_runs(fresh_database: Any, second: Any) -> None:
    with fleet(fresh_database, done) as f:
        counted(f, lambda request: reply(("count_notes", '{"topic": "a"}'), second))
        task = f.open()
        f.step(task)
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Rejected"]
        rejected = f.events(task)[-1]
        assert isinstance(rejected, Rejected)
        assert "count_notes" in rejected.text
        assert f.one("SELECT count(*) FROM notes") == 0


class Unmendable(Read[int]):
    """Find that nothing works. Use in tests."""

    def run(self, ctx: Any) -> int:
        """Nothing works."""
        raise Fatal("The quota is spent.", code="quota")


def test_a_read_that_no_model_can_mend_ends_the_row_and_parks(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", tools=[CountNotes, Unmendable])
        counted(f, lambda request: reply(("unmendable", "{}"), ("count_notes", '{"topic": "b"}')))
        task = f.open()
        assert f.step(task) == "waiting"
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Failed", "Failed"]
        assert (f.row(task)["waiting_for"], f.row(task)["reason"]) == ("operator", "quota")


def test_the_calls_of_dead_workers_are_charged(fresh_database: Any) -> None:
    with fleet(fresh_database, done, price_in=1.0) as f:
        change(f, "notes", budget=Budget(usd=Decimal(1)))
        object.__setattr__(f.run, "scripted", False)
        call = ("done", '{"outcome": {"text": "x"}}')
        counted(f, lambda request: reply(call, tokens_in=100, tokens_out=10))
        spent = []
        for deaths in (0, 2):
            task = f.open()
            with f.run.db.connection() as connection:
                connection.execute("UPDATE agent_tasks SET attempts = %s WHERE id = %s", (deaths, task))
            assert f.step(task) == "done"
            asked = next(e for e in f.events(task) if isinstance(e, ModelAsked))
            assert asked.lost == deaths
            spent.append(asked.spent.tokens_in)
            assert f.row(task)["attempts"] == 0
        estimate: Any = asked.receipt["total"]  # type: ignore[index, call-overload]
        assert spent == [100, 100 + 2 * estimate]


def test_three_deaths_of_a_step_quarantine_its_task(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        model = counted(f)
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET attempts = 2")
        assert f.step(task) == "done", "two deaths are forgiven"
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET attempts = 3")
        assert f.step(task) == "quarantined"
        assert (f.row(task)["reason"], model.asked) == ("worker_lost x3", 1)
        assert f.row(task)["inbox_pending"] == 1
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"


def test_a_step_that_breaks_counts_as_a_death_and_leaves_no_claim(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        owner(f, "ALTER TABLE agent_events ADD CHECK (type <> 'Finished') NOT VALID", fresh_database.owner)
        task = f.open()
        for deaths in (1, 2, 3):
            with pytest.raises(Exception, match="check constraint"):
                f.step(task)
            assert (f.row(task)["worker_id"], f.row(task)["attempts"]) == (None, deaths)
        assert f.step(task) == "quarantined"


def test_b53_no_transaction_is_open_while_the_model_thinks(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept")), db_pool=2) as f:
        model = counted(f)
        inner = f.run.model._inner  # type: ignore[attr-defined]
        states: list[Any] = []

        def think(request: ModelRequest) -> ModelReply:
            states.append(f.one("SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND"
                                " datname = current_database() AND state LIKE 'idle in transaction%%'"))  # fmt: skip
            assert f.run.db.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            return cast(ModelReply, inner.ask(request))

        model._reply = think
        task = f.open()
        assert f.drain(task) == "done"
        assert states == [0, 0]


def test_a_tool_newer_than_this_code_is_let_go_and_is_no_death(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        f.step(task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET state = jsonb_set(state, '{call,tool}', '\"newer\"')")
        assert f.step(task) == "nothing"
        row = f.row(task)
        assert (row["status"], row["worker_id"], row["attempts"]) == ("ready", None, 0)
        assert row["nudged_at"] is not None, "rung again after a while, not at once"


@pytest.mark.parametrize("what", ["code_floor = 2", "state_version = 2", "agent = 'newer'"])
def test_a_task_for_newer_code_is_not_claimed(fresh_database: Any, what: Any) -> None:
    with fleet(fresh_database, done) as f:
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute(f"UPDATE agent_tasks SET {what}")
        assert f.step(task) == "nothing"
        assert (f.row(task)["fence"], f.row(task)["attempts"]) == (0, 0)


def test_a_subject_line_that_breaks_does_not_hold_up_the_result(fresh_database: Any) -> None:
    def subject(outcome: Any) -> str:
        raise KeyError("a bug")

    with fleet(fresh_database, done) as f:
        change(f, "notes", subject=subject)
        task = f.open()
        assert f.drain(task) == "done"
        assert f.one("SELECT payload ->> 'subject' FROM outbox WHERE channel = 'email'") == "notes: done"


def test_code_that_speaks_first_may_look_at_what_opened_the_run(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f:
        change(f, "notes", steer=lambda task: Done(outcome=Text(text=task.event.text)))
        model = counted(f)
        task = f.open(text="hello")
        assert f.step(task) == "done"
        assert isinstance(f.events(task)[-1], Finished)
        assert f.row(task)["outcome"] == {"text": "hello"}
        assert model.asked == 0


class Huge(Read[str]):
    """Read much. Use in tests."""

    def run(self, ctx: Any) -> str:
        """Much."""
        return "x" * 5000


def test_a_large_result_of_this_very_step_can_be_looked_at(fresh_database: Any) -> None:
    def steer(task: Task) -> Any:
        return Done(outcome=Text(text=str(len(str(task.last(Huge)))))) if task.did(Huge) else None

    with fleet(fresh_database, once(Huge())) as f:
        change(f, "notes", tools=[Huge], steer=steer)
        task = f.open()
        assert f.drain(task) == "done"
        assert f.row(task)["outcome"] == {"text": "5000"}
