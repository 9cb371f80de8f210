"""Defects that were found in the systems this one learned from, about people and the life of a task: one test each.

The number in a name is that of the defect in our list; `tests/architecture/test_defects_are_proved.py` counts them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.agents.notes.tools import KeepNote
from tests.agents.refunds.tools import Pay
from tests.agents.signoff.tools import Ship
from tests.asked import DOMAIN, SECRET, URL, asked
from tests.callers import callers, dump, stepping
from tests.fakes.http_service import FakeService
from tests.hands import change, counted, due, once, together
from tests.harness import Fleet, fleet
from tests.integration.test_cli_look import Verb, verb
from twelvefold import Done, Task, Text, Wait
from twelvefold.events import ApprovalMoved, Decided
from twelvefold.ports import ModelReply, ModelRequest, NotSent
from twelvefold.tool import Tool
from workers.relay import deliver

__all__ = ["verb"]
LOUD = KeepNote(text="LOUD")
PEARS = Ship(item="a box of pears", people="#desk")


def question(api: Any, task: str) -> dict[str, Any]:
    """What the thread asks, as a client names it."""
    found: dict[str, Any] = api.get(f"/thread/{task}").json()["waiting"]
    return found


def answer(api: Any, task: str, approved: bool = True, **more: Any) -> Any:
    """Decide about what the thread asks."""
    asks = question(api, task)
    body = {"type": "approval", "approved": approved, "call_id": asks["call_id"], "digest": asks["digest"], **more}
    return api.post(f"/thread/{task}/response", body)


def seen_by_the_model(f: Fleet) -> list[str]:
    """Every prompt from here on."""
    seen: list[str] = []
    inner = f.run.model

    def reply(request: ModelRequest) -> ModelReply:
        seen.append(request.system + request.user + json.dumps(request.menu))
        return inner.ask(request)

    counted(f, reply)
    return seen


def test_f01_concurrent_approvals_run_the_tool_once(fresh_database: Any) -> None:
    with fleet(fresh_database, once(LOUD)) as f, callers(f) as api:
        task = f.open()
        f.drain(task)
        asks = question(api, task)
        body = {"type": "approval", "approved": True, "call_id": asks["call_id"], "digest": asks["digest"]}
        api.token("requester", "approver")
        answers = together(*[lambda: api.post(f"/thread/{task}/response", body) for _ in range(20)])
        assert {found.status_code for found in answers} == {202}
        together(*[lambda: f.step(task) for _ in range(5)])
        assert f.drain(task) in ("done", "nothing")
        assert f.one("SELECT count(*) FROM notes") == 1


def test_f02_no_transport_data_ever_appears_in_a_prompt_or_in_the_log(fresh_database: Any) -> None:
    with fleet(fresh_database, once(LOUD)) as f:
        seen = seen_by_the_model(f)
        with callers(f) as api, stepping(f):
            first = api.post("/thread?wait=30", {"message": "hello", "agent": "notes"}, key="idem-1").json()
            url = first["events"][-1]["data"]["response_url"]
            asks = question(api, first["thread_id"])
            yes = {"type": "approval", "approved": True, "call_id": asks["call_id"], "digest": asks["digest"]}
            assert api.post(f"{url}?wait=30", yes).json()["status"] == "done"
            secret = api.token("requester", "approver")
        stored = str([event.data for event in f.events(first["thread_id"])])
        for text in (*seen, stored):
            for transport in ("response_url", url, "/thread/", secret, "Bearer", "token:"):
                assert transport not in text
        assert not any("idem-1" in text for text in seen)
        assert len(seen) >= 2


def test_f08_every_field_on_the_card_is_the_field_that_is_executed(fresh_database: Any) -> None:
    with FakeService() as service:
        port = int(service.address.rpartition(":")[2])
        call = Pay.model_validate({"port": port, "order_id": "o-77", "amount": "120.50"})
        with fleet(fresh_database, once(call)) as f:
            task = f.open("refunds")
            assert f.drain(task) == "waiting"
            card = f.one("SELECT payload -> 'card' FROM outbox WHERE payload -> 'card' IS NOT NULL LIMIT 1")
            shown = json.loads(card["args"])
            assert shown.keys() == Pay.model_fields.keys(), "nothing that is executed is left out"
            f.operate.decide(task, card["call"], approved=True, by="ann", digest=card["digest"], proof="override")
            assert f.drain(task) == "done"
            row = f.run.db.rows("SELECT order_id, amount FROM refunds")[0]
            assert (row["order_id"], row["amount"]) == (shown["order_id"], Decimal(shown["amount"]))
            assert len(service.effects) == 1 and shown["port"] == port


def test_f09_what_is_executed_comes_from_our_row_and_not_from_the_answer(fresh_database: Any) -> None:
    with fleet(fresh_database, once(PEARS)) as f, callers(f) as api:
        task = f.open("signoff")
        f.drain(task)
        before = dump(f)
        for more in ({"args": {"item": "gold"}}, {"tool": "sell"}, {"function_call": {"item": "gold"}}):
            assert answer(api, task, **more).status_code == 400, "an answer has no place for what to execute"
        assert dump(f)["approvals"] == before["approvals"]
        assert answer(api, task).status_code == 202
        assert f.drain(task) == "done"
        assert f.one("SELECT text FROM notes") == "a box of pears"


def test_f10_an_approval_of_an_older_snapshot_is_refused(fresh_database: Any) -> None:
    with fleet(fresh_database, once(LOUD)) as f, callers(f) as api:
        task = f.open()
        f.drain(task)
        old = question(api, task)
        assert answer(api, task).status_code == 202
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET valid_until = clock_timestamp()")
        f.drain(task)
        new = question(api, task)
        assert (new["call_id"], new["digest"]) != (old["call_id"], old["digest"]) or new["since"] != old["since"]
        stale = {"type": "approval", "approved": True, "call_id": old["call_id"], "digest": "0" * 64}
        refused = api.post(f"/thread/{task}/response", stale)
        assert refused.status_code == 409 and f.one("SELECT count(*) FROM notes") == 0
        assert api.get(f"/thread/{task}").json()["waiting"] == new


def test_f11_a_reply_goes_to_the_thread_it_answers(fresh_database: Any) -> None:
    with asked(fresh_database, Ship(item="a box of pears")) as a:
        assert a.post().status_code == 200
        assert a.fleet.drain(a.task) == "done"
        a.deliver()
        asks, *_, result = [mail for mail in a.box.mails if mail["To"] == "ann@example.com"]
        assert result["In-Reply-To"] == result["References"] == asks["Message-ID"]
        assert DOMAIN in result["In-Reply-To"] and URL and SECRET
        a.fleet.intake.message(a.task, source="api", key="m", text="and another", sender="ann@example.com", proof="t")
        assert a.fleet.drain(a.task) in ("waiting", "done") and a.fleet.state(a.task).run == 2, "the same task"


def test_f13_an_error_after_the_acknowledgement_is_stored_on_the_task(fresh_database: Any) -> None:
    def broken(task: Task) -> Tool[Any]:
        raise KeyError("a bug of the agent")

    with fleet(fresh_database, once(LOUD)) as f:
        change(f, "notes", steer=broken)
        with callers(f) as api:
            first = api.post("/thread", {"message": "hello", "agent": "notes"}, key="k")
            assert first.status_code == 202
            task = first.json()["thread_id"]
            assert f.drain(task) == "quarantined"
            shown = api.get(f"/thread/{task}").json()
            assert (shown["status"], shown["reason"]) == ("quarantined", "KeyError")
            assert shown["events"][-1]["type"] == "Quarantined" and "a bug of the agent" not in str(shown)
            again = api.post("/thread", {"message": "hello", "agent": "notes"}, key="k")
            assert (again.status_code, again.json()["thread_id"]) == (202, task)


def test_f14_a_question_that_cannot_be_sent_is_tried_again_where_everybody_sees_it(
    fresh_database: Any, verb: Verb
) -> None:
    class Down:
        """A channel whose server is away."""

        def push(self, letter: Any) -> Any:
            """Refuse it for now."""
            raise NotSent("the mail server is away", retry=True)

    with fleet(fresh_database, once(Ship(item="a box of pears"))) as f:
        task = f.open("signoff")
        assert f.drain(task) == "waiting"
        for row in f.run.db.rows("SELECT id::text FROM outbox"):
            assert deliver(row["id"], f.run, {"email": Down()}) == "pending"
        rows = f.run.db.rows("SELECT state, attempts, error, due_at > clock_timestamp() AS later FROM outbox")
        assert {tuple(row.values()) for row in rows} == {("pending", 1, "the mail server is away", True)}
        code, text = verb("show", task)
        assert code == 0 and "waiting (approval)" in text and "pending" in text and "the mail server is away" in text
        call = f.state(task).call
        assert call is not None
        assert f.operate.decide(task, call.seq, approved=True, by="ann@example.com").state == "approved"


def test_f23_a_rejection_without_a_comment_works(fresh_database: Any) -> None:
    with fleet(fresh_database, once(LOUD)) as f, callers(f) as api:
        task = f.open()
        f.drain(task)
        seen = seen_by_the_model(f)
        assert answer(api, task, approved=False).status_code == 202
        assert f.drain(task) == "done" and f.one("SELECT count(*) FROM notes") == 0
        assert 'state="rejected"' in seen[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_f24_looking_never_approves(fresh_database: Any, method: str) -> None:
    with asked(fresh_database, Ship(item="a box of pears", risk="low")) as a:
        before = a.dump()
        query = "?decision=approve&approved=true"
        for path in (a.path(), a.path() + query):
            a.get(path, method)
        with callers(a.fleet) as api:
            api.token("approver")
            for path in (f"/thread/{a.task}/response{query}", f"/thread/{a.task}{query}"):
                found = api.client.request(method, path, headers=api.bearer("approver"))
                assert found.status_code in (400, 405)
        assert a.dump() == before


def test_f25_two_open_questions_about_the_same_thing_get_their_own_answers(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        ships = Ship(item=task.event.text, people="#desk")
        return Done(outcome=Text(text="x")) if task.did(Ship) or task.denied(Ship) else ships

    with fleet(fresh_database, script) as f, callers(f) as api:
        body = {"agent": "signoff", "business_ref": "o-7"}
        tasks = [api.post("/thread", {**body, "message": word}).json()["thread_id"] for word in ("pears", "plums")]
        for task in tasks:
            assert f.drain(task) == "waiting"
        assert {f.row(task)["business_entity_id"] for task in tasks} <= {"o-7", "pears", "plums"}
        assert answer(api, tasks[1], approved=True).status_code == 202
        assert answer(api, tasks[0], approved=False, comment="too ripe").status_code == 202
        assert [f.drain(task) for task in tasks] == ["done", "done"]
        assert [row["text"] for row in f.run.db.rows("SELECT text FROM notes")] == ["plums"]
        moved = [[e for e in f.events(task) if isinstance(e, ApprovalMoved)][-1] for task in tasks]
        assert [(m.to, m.comment) for m in moved] == [("rejected", "too ripe"), ("approved", "")]


def test_f26_a_rejected_call_is_visible_to_whoever_watches_the_log(fresh_database: Any) -> None:
    with capture_logs() as lines, fleet(fresh_database, once(LOUD)) as f:
        task = f.open()
        f.drain(task)
        (call,) = [seq for seq, event in enumerate(f.events(task), 1) if isinstance(event, Decided)]
        f.operate.decide(task, call, approved=False, by="ann", comment="a secret reason")
        f.drain(task)
    (told,) = [line for line in lines if line["event"] == "call_denied"]
    assert (told["task"], told["agent"], told["tool"], told["call"], told["why"]) == (
        task, "notes", "keep_note", call, "rejected",
    )  # fmt: skip
    assert "LOUD" not in str(lines) and "a secret reason" not in str(lines)


def test_f29_a_question_whose_time_is_over_is_not_told_as_a_rejection(fresh_database: Any) -> None:
    with fleet(fresh_database, once(LOUD)) as f:
        seen = seen_by_the_model(f)
        expired, rejected = f.open(), f.open()
        for task in (expired, rejected):
            assert f.drain(task) == "waiting"
        del seen[:]
        with f.run.db.connection() as connection:
            connection.execute(
                "UPDATE approvals SET deadline = clock_timestamp() - interval '1 s' WHERE task_id = %s", (expired,)
            )
        due(f, expired)
        assert f.drain(expired) == "done"
        call = f.state(rejected).call
        assert call is not None
        f.operate.decide(rejected, call.seq, approved=False, by="ann")
        assert f.drain(rejected) == "done"
        rows = f.run.db.rows("SELECT task_id::text, state, decided_by FROM approvals")
        assert {row["task_id"]: (row["state"], row["decided_by"]) for row in rows} == {
            expired: ("expired", None), rejected: ("rejected", "ann"),
        }  # fmt: skip
        assert 'state="expired"' in seen[0] and "rejected" not in seen[0]
        assert 'state="rejected"' in seen[1] and "expired" not in seen[1]


def test_f30_hours_of_waiting_use_nothing_of_the_budget(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="x")) if task.did(Wait) else Wait(why="x", seconds=29 * 24 * 3600)

    with fleet(fresh_database, script) as f:
        task = f.open()
        assert f.drain(task) == "waiting"
        with f.run.db.connection() as connection:
            connection.execute(
                "UPDATE agent_tasks SET state = jsonb_set(state, '{opened_at}',"
                " to_jsonb(clock_timestamp() - interval '29 days')), created_at = created_at - interval '29 days'"
                " WHERE id = %s",
                (task,),
            )
        due(f, task)
        assert f.drain(task) == "done"
        row = f.row(task)
        assert row["active_ms"] < 60_000 and row["finished_at"] > datetime.now(UTC).replace(year=2000)
        assert "LimitReached" not in f.kinds(task)
