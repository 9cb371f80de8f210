"""What forbids a call right before it begins, and what the step commits instead."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.agents.notes.tools import CountNotes, KeepNote
from tests.agents.refunds.tools import Pay, PayAgain
from tests.fakes.http_service import FakeService
from tests.hands import beside, change, due, once, owner
from tests.harness import Fleet, fleet
from twelvefold import AUTO, Task, Verdict, ask, deny
from twelvefold.events import ApprovalMoved, Blocked, Finished, PolicyDenied, Started
from twelvefold.tool import Tool
from workers.operate import Refused
from workers.store import sweeps


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The outside."""
    with FakeService() as made:
        yield made


def payment(service: FakeService, amount: str = "10", kind: type[Tool[Any]] = Pay) -> Any:
    """A payment; one over 100 is asked about."""
    port = int(service.address.rpartition(":")[2])
    return kind.model_validate({"port": port, "order_id": "o1", "amount": amount})


def call_of(f: Fleet, task: str) -> int:
    """The seq of the open call."""
    call = f.state(task).call
    assert call is not None
    return call.seq


KINDS = ["effect", "write"]


def about_to(f: Fleet, kind: str, tenant: str = "t1") -> str:
    """A task whose next step begins a call that nobody has to approve."""
    task = f.open("refunds" if kind == "effect" else "notes", tenant=tenant)
    assert f.step(task) == "ready"
    return task


def quiet(service: FakeService, kind: str) -> Any:
    """The call of this kind."""
    return payment(service) if kind == "effect" else KeepNote(text="quiet")


def loud(service: FakeService, kind: str) -> Any:
    """The call of this kind that a person has to approve."""
    return payment(service, "200") if kind == "effect" else KeepNote(text="LOUD")


def asked(f: Fleet, kind: str) -> str:
    """A task that waits for an approval."""
    task = f.open("refunds" if kind == "effect" else "notes")
    assert f.drain(task) == "waiting"
    assert f.row(task)["waiting_for"] == "approval"
    return task


def nothing_begun(f: Fleet, service: FakeService) -> bool:
    """Nothing was sent and nothing written."""
    tables = "SELECT (SELECT count(*) FROM notes) + (SELECT count(*) FROM refunds)"
    return not service.begun and f.one(tables) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["*", "agent:{agent}", "tool:{tool}"])
def test_a_freeze_of_its_scope_blocks_a_call_and_the_model_is_told(
    fresh_database: Any, service: FakeService, scope: str, kind: str
) -> None:
    call = quiet(service, kind)
    agent = "refunds" if kind == "effect" else "notes"
    with fleet(fresh_database, once(call)) as f:
        task = about_to(f, kind)
        scope = scope.format(agent=agent, tool=call.__spec__.name)
        frozen = f.switches.freeze(scope, by="ann", reason="quarter end")
        assert frozen.begun == ()
        assert f.step(task) == "ready"
        blocked = [e for e in f.events(task) if isinstance(e, Blocked)]
        assert [(b.scope, b.reason) for b in blocked] == [(scope, "quarter end")]
        assert nothing_begun(f, service)
        assert f.drain(task) == "done", "the model goes on, it has read that it is frozen"


@pytest.mark.parametrize("kind", KINDS)
def test_a_freeze_of_others_or_of_the_past_or_lifted_blocks_nothing(
    fresh_database: Any, service: FakeService, kind: str
) -> None:
    with fleet(fresh_database, once(quiet(service, kind))) as f:
        f.switches.freeze("*", by="ann", tenant="t2")
        f.switches.freeze("agent:other", by="ann")
        f.switches.freeze("tool:other", by="ann")
        assert f.switches.lift("freeze", f.switches.freeze("*", by="ann").scope)
        f.switches.freeze("*", by="ann", until=datetime.now(UTC) - timedelta(seconds=1))
        assert f.drain(about_to(f, kind)) == "done"
        other = about_to(f, kind, tenant="t2")
        assert f.drain(other) == "done"
        assert "Blocked" in f.kinds(other)


def test_a_freeze_stops_neither_reads_nor_the_model(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(CountNotes(topic="milk"))) as f:
        f.switches.freeze("*", by="ann")
        task = f.open()
        assert f.drain(task) == "done"
        assert "Returned" in f.kinds(task)


@pytest.mark.parametrize("kind", KINDS)
def test_a_freeze_supersedes_the_approval_of_the_blocked_call(
    fresh_database: Any, service: FakeService, kind: str
) -> None:
    with fleet(fresh_database, once(loud(service, kind))) as f:
        task = asked(f, kind)
        f.operate.decide(task, call_of(f, task), approved=True, by="ann")
        f.switches.freeze("*", by="ann")
        assert f.drain(task) == "done"
        assert f.one("SELECT state FROM approvals") == "superseded"
        assert nothing_begun(f, service)


def test_freeze_answers_with_what_had_begun(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(payment(service))) as f:
        task = about_to(f, "effect")
        service.hold()
        with beside(lambda: f.step(task)):
            with service.gate.waiting(1, 10):
                begun = f.switches.freeze("agent:refunds", by="ann").begun
                assert f.switches.freeze("agent:notes", by="ann").begun == ()
            service.gate.release()
        assert begun == ((task, call_of_started(f, task), "pay"),)
        assert f.drain(task) == "done", "what had begun is carried through"


def call_of_started(f: Fleet, task: str) -> int:
    """The call of the Started event."""
    return next(e.call for e in f.events(task) if isinstance(e, Started))


def test_a_resend_waits_for_the_end_of_a_freeze(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(payment(service, kind=PayAgain))) as f:
        task = about_to(f, "effect")
        service.drop_answer()
        assert f.step(task) == "ready"
        f.switches.freeze("*", by="ann")
        assert f.drain(task) == "waiting"
        assert (f.row(task)["waiting_for"], f.state(task).call.phase) == ("settle", "doubt")  # type: ignore[union-attr]
        assert len(service.begun) == 1
        assert f.switches.lift("freeze", "*")
        due(f, task)
        assert f.drain(task) == "done"
        assert (len(service.begun), len(service.effects)) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize("moment", ["before the claim", "before begin"])
def test_a_pause_lets_nothing_begin_and_gives_the_task_back_ready(
    fresh_database: Any, service: FakeService, kind: str, how: str, moment: str
) -> None:
    with fleet(fresh_database, once(quiet(service, kind))) as f:
        task = about_to(f, kind)

        def pause() -> None:
            if how == "task":
                f.operate.pause(task)
            else:
                f.switches.pause("*", by="ann")

        if moment == "before the claim":
            pause()
        else:
            _between_claim_and_begin(f, kind, pause)
        for _ in range(3):
            assert f.step(task) == "nothing"
        row = f.row(task)
        assert (row["status"], row["worker_id"], row["attempts"]) == ("ready", None, 0)
        assert nothing_begun(f, service)
        assert not _rung(f), "no hot loop: a paused task is not rung"
        f.operate.resume(task) if how == "task" else f.switches.lift("pause", "*")
        assert f.drain(task) == "done"
        assert not nothing_begun(f, service)


def _rung(f: Fleet) -> list[Any]:
    with f.run.db.connection() as connection:
        connection.execute("UPDATE agent_tasks SET nudged_at = NULL")
    return sweeps.ring(f.run.db, "steps", 100, 5)


def _between_claim_and_begin(f: Fleet, kind: str, act: Any) -> None:
    """Have it happen once, after the claim and before the checks: the approval rule is asked at that moment."""
    tool = Pay if kind == "effect" else KeepNote
    name = "refunds" if kind == "effect" else "notes"
    waiting = [True]

    class Same(tool):  # type: ignore[misc, valid-type]
        """The same. Use in tests."""

        def approval(self, task: Task) -> Verdict:
            if task.state.call is not None and waiting and waiting.pop():
                act()
            return AUTO

    Same.__spec__ = tool.__spec__
    change(f, name, tools=[Same])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_before_begin_keeps_what_was_absorbed(fresh_database: Any, service: FakeService, kind: str) -> None:
    with fleet(fresh_database, once(quiet(service, kind))) as f:
        task = about_to(f, kind)
        f.intake.message(task, source="test", key="m", text="more", sender="ann", proof="test")
        _between_claim_and_begin(f, kind, lambda: f.operate.pause(task))
        assert f.step(task) == "ready"
        row = f.row(task)
        assert (row["worker_id"], row["inbox_pending"]) == (None, 0)
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Arrived"]
        assert nothing_begun(f, service)
        assert f.step(task) == "nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_before_begin_ends_the_task_and_nothing_begins(
    fresh_database: Any, service: FakeService, kind: str
) -> None:
    with fleet(fresh_database, once(quiet(service, kind))) as f:
        task = about_to(f, kind)
        _between_claim_and_begin(f, kind, lambda: f.operate.cancel(task, by="ann"))
        assert f.step(task) == "cancelled"
        assert f.kinds(task)[-2:] == ["CancelAsked", "Finished"]
        assert nothing_begun(f, service)
        row = f.row(task)
        assert (row["inbox_pending"], row["cancel_asked"]) == (0, None)


def _expire(f: Fleet) -> None:
    with f.run.db.connection() as connection:
        connection.execute(
            "UPDATE approvals SET valid_until = clock_timestamp() - interval '1 s' WHERE used_at IS NULL"
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE approvals SET valid_until = clock_timestamp() - interval '1 s'",
        "UPDATE approvals SET used_at = clock_timestamp()",
        "UPDATE approvals SET digest = 'another'",
        "DELETE FROM votes; DELETE FROM approvals",
    ],
)
def test_an_approval_that_cannot_be_used_is_stale_and_asked_anew(
    fresh_database: Any, service: FakeService, kind: str, spoil: Any
) -> None:
    with fleet(fresh_database, once(loud(service, kind))) as f:
        task = asked(f, kind)
        first = call_of(f, task)
        f.operate.decide(task, first, approved=True, by="ann")
        owner(f, spoil, fresh_database.owner)
        assert f.drain(task) == "waiting"
        assert [e.to for e in f.events(task) if isinstance(e, ApprovalMoved)] == ["approved", "stale"]
        assert f.row(task)["waiting_for"] == "approval"
        assert nothing_begun(f, service)
        f.operate.decide(task, first, approved=True, by="ann")
        assert f.drain(task) == "done"
        assert not nothing_begun(f, service)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_approval_is_asked_for_at_most_three_times(
    fresh_database: Any, service: FakeService, kind: str
) -> None:
    with fleet(fresh_database, once(loud(service, kind))) as f:
        task = asked(f, kind)
        rounds = 0
        while f.row(task)["waiting_for"] == "approval":
            rounds += 1
            f.operate.decide(task, call_of(f, task), approved=True, by="ann")
            _expire(f)
            f.drain(task)
        assert rounds == 3
        assert isinstance(f.events(task)[-1], Finished)
        assert [e.why for e in f.events(task) if isinstance(e, PolicyDenied)]
        assert nothing_begun(f, service)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verdict", ["ask", "deny", "raise"])
def test_the_rule_is_asked_again_right_before_the_call_begins(
    fresh_database: Any, service: FakeService, kind: str, verdict: str
) -> None:
    tool = Pay if kind == "effect" else KeepNote
    now: list[Verdict] = [AUTO]

    class Ruled(tool):  # type: ignore[misc, valid-type]
        """Under a rule that changes. Use in tests."""

        def approval(self, task: Task) -> Verdict:
            if not now:
                raise KeyError("a bug in the rule")
            return now[0]

    Ruled.__spec__ = tool.__spec__
    with fleet(fresh_database, once(quiet(service, kind))) as f:
        change(f, "refunds" if kind == "effect" else "notes", tools=[Ruled])
        task = about_to(f, kind)
        now[:] = {"ask": [ask("#ops", "changed")], "deny": [deny("not today")], "raise": []}[verdict]
        ended = f.drain(task)
        assert nothing_begun(f, service)
        if verdict == "ask":
            assert (ended, f.row(task)["waiting_for"]) == ("waiting", "approval")
            f.operate.decide(task, call_of(f, task), approved=True, by="ann")
            assert f.drain(task) == "done"
            assert not nothing_begun(f, service)
        elif verdict == "deny":
            assert [e.why for e in f.events(task) if isinstance(e, PolicyDenied)] == ["not today"]
        else:
            assert (ended, f.row(task)["reason"], f.row(task)["worker_id"]) == ("quarantined", "KeyError", None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_approved_call_that_is_denied_now_uses_no_approval(
    fresh_database: Any, service: FakeService, kind: str
) -> None:
    tool = Pay if kind == "effect" else KeepNote
    now: list[Verdict] = []

    class Ruled(tool):  # type: ignore[misc, valid-type]
        """Under a rule that changes. Use in tests."""

        def approval(self, task: Task) -> Verdict:
            return now[0] if now else super().approval(task)

    Ruled.__spec__ = tool.__spec__
    with fleet(fresh_database, once(loud(service, kind))) as f:
        change(f, "refunds" if kind == "effect" else "notes", tools=[Ruled])
        task = asked(f, kind)
        f.operate.decide(task, call_of(f, task), approved=True, by="ann")
        now[:] = [deny("not any more")]
        assert f.drain(task) == "done"
        assert f.one("SELECT state || coalesce(used_at::text, '') FROM approvals") == "superseded"
        assert nothing_begun(f, service)


def test_an_expiry_that_a_decision_forestalled_gives_the_claim_back_at_once(
    fresh_database: Any, service: FakeService
) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = asked(f, "write")
        call = call_of(f, task)
        due(f, task)  # by the state the deadline is over, by the row it is not: the row decides
        assert f.step(task) == "nothing"
        row = f.row(task)
        assert (row["worker_id"], row["attempts"], row["nudged_at"]) == (None, 0, None)
        assert f.operate.decide(task, call, approved=True, by="ann").state == "approved"
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 1


def test_an_expired_approval_is_no_rejection_and_nobody_can_decide_it_any_more(
    fresh_database: Any, service: FakeService
) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = asked(f, "write")
        call = call_of(f, task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, call, approved=True, by="ann")
        assert refused.value.code == 410
        due(f, task)
        assert f.drain(task) == "done"
        assert [e.to for e in f.events(task) if isinstance(e, ApprovalMoved)] == ["expired"]
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, call, approved=True, by="ann")
        assert refused.value.code == 410
