"""What an arrival does, by the status of its task: the table of the protocol, cell by cell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import change, counted, due, once
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived, Verdict
from twelvefold import Done, NothingToDo, Read, Task, Text, Wait, on
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.tool import Tool
from workers.intake import put
from workers.operate import Refused
from workers.relay import deliver
from workers.store import sweeps
from workers.store.inbox import Entry

STATUSES = ["ready", "claimed", "paused", "quarantined", "waiting", "done", "failed", "cancelled"]


def at(f: Fleet, status: str) -> str:
    """A task of this status."""
    task = f.open()
    match status:
        case "waiting" | "done":
            assert f.drain(task) == status
        case "claimed":
            with f.run.db.connection() as connection:
                connection.execute("UPDATE agent_tasks SET worker_id = gen_random_uuid() WHERE id = %s", (task,))
        case "paused":
            f.operate.pause(task)
        case "cancelled":
            f.operate.cancel(task, by="ann")
            assert f.drain(task) == "cancelled"
        case "quarantined" | "failed":
            with f.run.db.connection() as connection:
                connection.execute(
                    "UPDATE agent_tasks SET status = %(s)s, inbox_pending = 0,"
                    " state = state || jsonb_build_object('status', %(s)s::text) WHERE id = %(id)s",
                    {"id": task, "s": status},
                )
                connection.execute("UPDATE arrivals SET absorbed_seq = 1 WHERE task_id = %s", (task,))
    return task


def message(f: Fleet, task: str, key: str = "m") -> Verdict:
    """A message for the task."""
    return f.intake.message(task, source="test", key=key, text="more", sender="ann")


def waits(task: Task) -> Tool[Any]:
    """Wait for an event, then be done."""
    return Done(outcome=Text(text="waited")) if task.did(Wait) else Wait(why="it takes time", event="parcel-1")


def script_for(status: str) -> Any:
    """A model whose task comes to rest at this status."""
    return (lambda task: Done(outcome=Text(text="x"))) if status == "done" else waits


@pytest.mark.parametrize("status", STATUSES)
def test_a_message_by_the_status_of_its_task(fresh_database: Any, status: str) -> None:
    with fleet(fresh_database, script_for(status)) as f:
        task = at(f, status)
        before = f.row(task)
        verdict = message(f, task)
        row = f.row(task)
        counted_ = row["inbox_pending"] - before["inbox_pending"]
        if status in ("failed", "cancelled"):
            assert (verdict.outcome, verdict.reason) == ("ignored", status)
            assert (counted_, row["status"]) == (0, status)
            assert f.one("SELECT state || ':' || reason FROM arrivals WHERE key = 'm'") == f"ignored:{status}"
        else:
            assert (verdict.outcome, counted_) == ("accepted", 1)
            wakes = {"waiting": "ready", "done": "ready", "claimed": "ready", "paused": "ready"}
            assert row["status"] == wakes.get(status, status)
            assert row["lane"] == "answers", "a person is waiting"
        assert message(f, task).outcome == "duplicate"
        assert f.row(task)["inbox_pending"] == row["inbox_pending"]


@pytest.mark.parametrize("status", STATUSES)
def test_an_external_event_and_a_childs_result_by_the_status_of_their_task(fresh_database: Any, status: str) -> None:
    with fleet(fresh_database, script_for(status)) as f:
        task = at(f, status)
        before = f.row(task)
        for kind in ("event", "child"):
            entry = Entry(tenant="t1", source="test", key=kind, kind=kind, task_id=task, payload={})
            with f.run.db.transaction() as connection:
                verdict = put(connection, entry, person=False)
            if status in ("done", "failed", "cancelled"):
                reason = "finished" if status == "done" else status
                assert (verdict.outcome, verdict.reason) == ("ignored", reason)
            else:
                assert verdict.outcome == "accepted"
        row = f.row(task)
        ended = status in ("done", "failed", "cancelled")
        assert row["inbox_pending"] - before["inbox_pending"] == (0 if ended else 2)
        assert row["status"] == ("ready" if status in ("waiting", "claimed", "paused") else status)
        assert row["lane"] == "steps"


@pytest.mark.parametrize("status", ["ready", "paused", "quarantined", "waiting"])
def test_a_decision_is_judged_by_its_row_whatever_the_status(fresh_database: Any, status: str) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = f.open()
        assert f.drain(task) == "waiting"
        call = f.state(task).call
        assert call is not None
        if status == "paused":
            f.operate.pause(task)
        elif status != "waiting":
            with f.run.db.connection() as connection:
                connection.execute("UPDATE agent_tasks SET status = %s WHERE id = %s", (status, task))
        first = f.operate.decide(task, call.seq, approved=True, by="ann")
        assert (first.state, first.by) == ("approved", "ann")
        row = f.row(task)
        assert row["inbox_pending"] == 1
        assert row["status"] == ("ready" if status in ("waiting", "paused") else status)
        assert f.operate.decide(task, call.seq, approved=True, by="bob") == first
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, call.seq, approved=False, by="bob")
        assert refused.value.code == 409
        assert "ann" in str(refused.value)
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, call.seq + 9, approved=True, by="bob")
        assert refused.value.code == 404
        assert f.row(task)["inbox_pending"] == 1


@pytest.mark.parametrize("state", ["expired", "superseded", "stale"])
def test_a_decision_on_what_is_no_longer_open_is_gone(fresh_database: Any, state: str) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = f.open()
        f.drain(task)
        call = f.state(task).call
        assert call is not None
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET state = %s", (state,))
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, call.seq, approved=True, by="ann")
        assert refused.value.code == 410
        assert f.row(task)["inbox_pending"] == 0


def test_a_decision_on_another_digest_than_the_shown_is_refused(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = f.open()
        f.drain(task)
        call = f.state(task).call
        assert call is not None
        with pytest.raises(Refused, match="not what is asked now"):
            f.operate.decide(task, call.seq, approved=True, by="ann", digest="other")
        assert f.operate.decide(task, call.seq, approved=True, by="ann", digest=call.digest).by == "ann"


def test_an_ending_task_supersedes_its_open_rows(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task = f.open()
        f.drain(task)
        f.operate.cancel(task, by="ann")
        assert f.drain(task) == "cancelled"
        assert f.one("SELECT state FROM approvals") == "superseded"


def test_a_message_to_a_done_task_opens_a_new_run_with_its_own_budget(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text=task.event.text))) as f:
        task = f.open(text="one")
        assert f.drain(task) == "done"
        f.intake.message(task, source="test", key="m", text="two", sender="ann")
        assert f.row(task)["status"] == "ready"
        assert f.drain(task) == "done"
        assert f.kinds(task)[4:6] == ["Arrived", "Reopened"]
        state = f.state(task)
        assert (state.run, state.used.decisions, state.lifetime.decisions) == (2, 1, 2)
        assert f.row(task)["outcome"] == {"text": "two"}


def test_a_done_task_that_absorbs_no_message_ends_again_as_it_was(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        model = counted(f)
        task = f.open()
        f.drain(task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET status = 'ready' WHERE id = %s", (task,))
        before = f.kinds(task)
        assert f.drain(task) == "done"
        assert f.kinds(task) == before
        assert model.asked == 1
        assert f.one("SELECT count(*) FROM outbox WHERE channel = 'email'") == 1


def test_a_message_during_the_last_step_is_not_lost(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        model = counted(f)
        inner = f.run.model._inner  # type: ignore[attr-defined]
        task = f.open()

        def late(request: Any) -> Any:
            if model.asked == 1:
                message(f, task)
            return inner.ask(request)

        model._reply = late
        assert f.step(task) == "ready", "done, and something is pending"
        assert f.drain(task) == "done"
        assert f.state(task).run == 2


@pytest.mark.parametrize("ends", ["failed", "cancelled"])
def test_what_is_pending_when_a_task_fails_or_is_cancelled_is_set_aside_by_the_sweep(
    fresh_database: Any, ends: str
) -> None:
    with fleet(fresh_database, lambda task: NothingToDo(reason="x")) as f:
        task = f.open()
        model = counted(f)
        change(f, "notes", on_stuck="failed", success=[])

        def late(request: Any) -> Any:
            if model.asked == 1:
                return ModelReply(text="prose")
            message(f, task)
            return ModelReply(text="more prose")

        if ends == "failed":
            model._reply = late
            f.drain(task)
        else:
            f.operate.cancel(task, by="ann")
            f.drain(task)
            with f.run.db.connection() as connection:
                connection.execute("UPDATE agent_tasks SET inbox_pending = 1 WHERE id = %s", (task,))
                connection.execute(
                    "INSERT INTO arrivals (tenant, source, key, kind, task_id, state, payload)"
                    " VALUES ('t1', 'test', 'm', 'message', %s, 'accepted', '{}')",
                    (task,),
                )
        assert f.row(task)["status"] == ends
        assert f.row(task)["inbox_pending"] == 1
        assert sweeps.set_aside(f.run.db) == 1
        assert f.row(task)["inbox_pending"] == 0
        assert f.one("SELECT state || ':' || reason FROM arrivals WHERE key = 'm'") == f"ignored:{ends}"
        assert sweeps.set_aside(f.run.db) == 0


def test_an_event_before_its_wait_is_adopted_by_the_commit_that_waits(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        first = f.intake.event("t1", "parcel-1", source="post", key="e1", payload={"n": 1})
        assert (first.outcome, first.reason) == ("accepted", "no_waiter")
        assert f.intake.event("t1", "parcel-1", source="post", key="e1", payload={"n": 1}).outcome == "duplicate"
        assert f.intake.event("t2", "parcel-1", source="post", key="e1", payload={"n": 2}).outcome == "accepted"
        task = f.open()
        assert f.step(task) == "ready", "waiting, and the event is there"
        assert f.drain(task) == "done"
        assert f.row(task)["inbox_pending"] == 0
        assert f.one("SELECT count(*) FROM arrivals WHERE state = 'unclaimed'") == 1, "the other tenant's"


def test_an_event_after_its_wait_wakes_the_waiter_at_once(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        task = f.open()
        assert f.drain(task) == "waiting"
        assert f.row(task)["wait_key"] == "parcel-1"
        assert f.intake.event("t1", "parcel-1", source="post", key="e1", payload={"n": 1}).task_id == task
        assert f.drain(task) == "done"
        assert f.intake.event("t1", "parcel-1", source="post", key="e2", payload={}).reason == "no_waiter"


@pytest.mark.parametrize("status", ["paused", "quarantined"])
def test_an_event_reaches_a_waiter_that_is_stopped(fresh_database: Any, status: str) -> None:
    with fleet(fresh_database, waits) as f:
        task = f.open()
        f.drain(task)
        if status == "paused":
            f.operate.pause(task)
        else:
            with f.run.db.connection() as connection:
                connection.execute(
                    "UPDATE agent_tasks SET status = 'quarantined', state = state || '{\"status\": \"quarantined\"}'"
                    " WHERE id = %s",
                    (task,),
                )
        assert f.intake.event("t1", "parcel-1", source="post", key="e1", payload={}).task_id == task
        assert f.step(task) == "nothing"
        f.operate.resume(task) if status == "paused" else f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"


def test_several_waiters_get_one_outbox_row_each(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        tasks = [f.open() for _ in range(3)]
        for task in tasks:
            assert f.drain(task) == "waiting"
        verdict = f.intake.event("t1", "parcel-1", source="post", key="e1", payload={"n": 1})
        assert verdict.reason == "shared by 3"
        assert f.intake.event("t1", "parcel-1", source="post", key="e1", payload={"n": 1}).outcome == "duplicate"
        letters = f.run.db.rows("SELECT id::text, recipient FROM outbox WHERE channel = 'task'")
        assert sorted(row["recipient"] for row in letters) == sorted(tasks)
        for row in letters:
            assert deliver(row["id"], f.run, {}) == "sent"
            assert deliver(row["id"], f.run, {}) == "nothing"
        for task in tasks:
            assert f.drain(task) == "done"


def test_an_unclaimed_event_is_given_up_after_a_day(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        f.intake.event("t1", "parcel-1", source="post", key="e1", payload={})
        assert sweeps.set_aside(f.run.db) == 0
        with f.run.db.connection() as connection:
            connection.execute("UPDATE arrivals SET received_at = received_at - interval '25 hours'")
        assert sweeps.set_aside(f.run.db) == 1
        task = f.open()
        assert f.drain(task) == "waiting"


def test_a_wait_that_times_out_wakes_by_its_deadline(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="x")) if task.did(Wait) else Wait(why="x", seconds=3600, event="parcel-1")

    with fleet(fresh_database, script) as f:
        task = f.open()
        assert f.drain(task) == "waiting"
        assert f.drain(task) == "nothing"
        due(f, task)
        assert f.drain(task) == "done"
        assert "Woke" in f.kinds(task)


def _arrived(payload: Any, **change_it: Any) -> Arrived:
    fields: dict[str, Any] = {
        "tenant": "t1", "source": "shop", "key": "k", "type": "order", "payload": payload, "raw": b"{}",
        "headers": {}, "sender": None, "conversation": None, "proof": "none",
    }  # fmt: skip
    return Arrived(**(fields | change_it))


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, IndexError, RuntimeError])
def test_a_delivery_that_cannot_be_mapped_is_stored_and_answered(fresh_database: Any, error: type[Exception]) -> None:
    def read(payload: Any) -> Any:
        raise error("a bug")

    with fleet(fresh_database, waits) as f:
        change(f, "notes", triggers=[on.webhook("shop", type="order", read=read)])
        assert f.intake.accept(_arrived({"text": "x"})).reason == "mapping"
        assert f.intake.accept(_arrived({"text": "x"}, key="other", type="none")).reason == "no_binding"
        assert f.one("SELECT count(*) FROM agent_tasks") == 0
        assert f.one("SELECT count(*) FROM arrivals") == 2


class Echo(Read[dict[str, str]]):
    """Give back what no JSON column holds. Use in tests."""

    bad: str

    def run(self, ctx: Any) -> dict[str, str]:
        """In a value and in a key."""
        return {f"k{CHARACTERS[self.bad]}": f"ok {CHARACTERS[self.bad]}"}


CHARACTERS = {"nul": "\u0000", "surrogate": "\ud83d"}


def _through_every_gate(f: Fleet, bad: str) -> None:
    """A webhook, a message, a model's arguments and a tool's result with such a character; the step completes."""
    change(f, "notes", tools=[Echo, KeepNote], triggers=[on.webhook("shop", type="order")])
    requests, text = list[str](), f"a{CHARACTERS[bad]}b"

    def answer(request: ModelRequest) -> ModelReply:
        requests.append(request.user)
        request.user.encode()
        calls = [("echo", {"bad": bad}), ("keep_note", {"text": text}), ("done", {"outcome": {"text": text}})]
        name, arguments = calls[len(requests) - 1]
        return ModelReply(calls=(ProposedCall(name, json.dumps(arguments)),), text=text, raw=text)

    counted(f, answer)
    verdict = f.intake.accept(_arrived({"text": text, "subject": text}, sender=text, key=text, conversation=text))
    assert verdict.outcome == "accepted"
    assert verdict.task_id is not None
    f.intake.message(verdict.task_id, source="test", key=f"m{text}", text=text, sender=text)
    assert f.drain(verdict.task_id) == "done"
    assert "Failed" not in f.kinds(verdict.task_id)
    assert f.one("SELECT text FROM notes") == "a\ufffdb"
    assert f.one("SELECT sender FROM arrivals ORDER BY id LIMIT 1") == "a\ufffdb"
    assert f.row(verdict.task_id)["outcome"] == {"text": "a\ufffdb"}
    assert f.one("SELECT count(*) FROM arrivals WHERE cleaned > 0") == 2
    assert "ok \ufffd" in requests[-1]


def test_b57_a_nul_character_is_replaced_at_every_gate_and_the_step_completes(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        _through_every_gate(f, "nul")


def test_b58_a_lone_surrogate_is_replaced_at_every_gate_and_the_next_request_encodes(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f:
        _through_every_gate(f, "surrogate")
