"""Switches over many tasks: what they hold, for how long, what the model reads of it, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.hands import change, counted, once
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived
from twelvefold import Done, Task, Text, on
from twelvefold.controls import Delegate
from twelvefold.ports import ModelReply, ModelRequest
from twelvefold.tool import Tool
from workers.operate import Refused
from workers.relay import deliver
from workers.store import sweeps, switches


def done(task: Task) -> Tool[Any]:
    """Be done with what was asked."""
    return Done(outcome=Text(text=task.event.text))


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents are done at once."""
    with fleet(fresh_database, done) as found:
        yield found


def rung(f: Fleet) -> list[str]:
    """Whom a sweep rings now, in order."""
    with f.run.db.connection() as connection:
        connection.execute("UPDATE agent_tasks SET nudged_at = NULL")
    found = [sweeps.ring(f.run.db, "steps", 1, 3600) for _ in range(20)]
    return [id_ for bells in found for id_, _ in bells]


SCOPES: list[Any] = [
    pytest.param("agent:notes", "*", id="an agent"),
    pytest.param("*", "t1", id="a tenant"),
    pytest.param("*", "*", id="everything"),
]


@pytest.mark.parametrize("kind", ["pause", "intake"])
@pytest.mark.parametrize(("scope", "tenant"), SCOPES)
def test_what_arrives_behind_a_switch_is_kept_and_worked_on_in_its_order(
    f: Fleet, kind: Any, scope: str, tenant: str
) -> None:
    change(f, "notes", triggers=[on.webhook("shop", type="order")])
    f.switches.throw(kind, scope, by="ann", tenant=tenant)
    other = f.open("refunds", tenant="t2")
    tasks = [_delivered(f, n) for n in range(5)]
    assert [f.step(task) for task in tasks] == ["nothing"] * 5
    free = [] if (scope, tenant) == ("*", "*") else [other]
    assert rung(f) == free
    assert f.switches.lift(kind, scope, tenant=tenant)
    assert [task for task in rung(f) if task != other] == tasks, "in the order in which they came"
    assert [f.drain(task) for task in tasks] == ["done"] * 5
    assert [f.row(task)["outcome"] for task in tasks] == [{"text": f"order {n}"} for n in range(5)]


def _delivered(f: Fleet, n: int) -> str:
    arrived = Arrived(
        tenant="t1", source="shop", key=f"d{n}", type="order", payload={"text": f"order {n}"}, raw=b"{}", headers={},
        sender=None, conversation=None, proof="none",
    )  # fmt: skip
    task = f.intake.accept(arrived).task_id
    assert task is not None
    return task


def test_a_stop_of_intake_lets_go_on_what_has_begun_with_its_news_and_its_children(fresh_database: Any) -> None:
    def script(task: Task) -> Tool[Any]:
        if task.event.text == "part":
            return Done(outcome=Text(text="the part"))
        handed = task.did(Delegate)
        return Done(outcome=Text(text="whole")) if handed else Delegate(agent="refunds", request="part")

    with fleet(fresh_database, script) as f:
        task = f.open(text="all")
        assert f.step(task) == "waiting"
        f.switches.stop_intake("*", by="ann")
        later = f.open(text="part")
        child = f.state(task).children[0].id
        assert f.drain(child) == "done", "a part of what had begun"
        for row in f.run.db.rows("SELECT id::text FROM outbox WHERE channel = 'task'"):
            assert deliver(row["id"], f.run, {}) == "sent"
        assert f.drain(task) == "done"
        f.intake.message(task, source="t", key="m", text="and more", sender="ann")
        assert f.step(task) == "waiting", "it takes the news, and hands on again"
        assert f.step(later) == "nothing"


def test_a_switch_ends_by_itself_when_its_time_is_over(f: Fleet) -> None:
    task = f.open()
    for throw in (f.switches.pause, f.switches.stop_intake):
        throw("*", by="ann", until=datetime.now(UTC) + timedelta(hours=1))
        assert f.step(task) == "nothing"
        with f.run.db.connection() as connection:
            connection.execute("UPDATE switches SET until = clock_timestamp()")
        assert not switches.listed(f.run.db)
    assert f.drain(task) == "done"


def test_a_switch_thrown_twice_is_one_with_the_newer_end_and_reason(f: Fleet) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    f.switches.freeze("*", by="ann", reason="quarter end")
    f.switches.freeze("*", by="bob", until=end, reason="audit")
    f.switches.freeze("*", by="cyd", tenant="t1")
    found = [(s["tenant"], s["by"], s["until"], s["reason"]) for s in switches.listed(f.run.db)]
    assert found == [("*", "bob", end, "audit"), ("t1", "cyd", None, "")]
    assert [s["by"] for s in switches.listed(f.run.db, "t2")] == ["bob"]
    assert f.switches.lift("freeze", "*") and not f.switches.lift("freeze", "*")
    assert [s["by"] for s in switches.listed(f.run.db)] == ["cyd"]


@pytest.mark.parametrize(
    ("kind", "scope"), [("freeze", "notes"), ("freeze", "tool:"), ("pause", "tool:pay"), ("intake", "tool:pay")]
)
def test_what_is_no_scope_is_refused_and_nothing_is_stored(f: Fleet, kind: Any, scope: str) -> None:
    with pytest.raises(Refused, match="agent:NAME"):
        f.switches.throw(kind, scope, by="ann")
    with pytest.raises(Refused, match="agent:NAME"):
        f.switches.lift(kind, scope)
    assert not switches.listed(f.run.db)


def test_the_model_reads_until_when_and_why_its_call_was_frozen(fresh_database: Any) -> None:
    seen: list[str] = []

    def reply(request: ModelRequest) -> ModelReply:
        seen.append(request.user)
        return f_model.ask(request)

    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        f_model = f.run.model
        counted(f, reply)
        end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
        f.switches.freeze("agent:notes", by="ann", until=end, reason="year-end closing")
        task = f.open()
        assert f.drain(task) == "done"
        assert "Blocked" in f.kinds(task) and not f.one("SELECT count(*) FROM notes")
        assert "year-end closing" not in seen[0] and "year-end closing" in seen[1]
        assert f"{end:%Y-%m-%dT%H:%M:%S}" in seen[1]


def test_what_holds_a_task_is_told_of_it(f: Fleet) -> None:
    begun, new = f.open(), f.open("refunds", tenant="t2")
    f.step(begun)
    f.switches.stop_intake("*", by="ann", reason="full")
    f.switches.pause("agent:refunds", by="ann")
    f.switches.pause("*", by="ann", tenant="t3")
    assert [(s["kind"], s["scope"]) for s in switches.holding(f.run.db, new)] == [
        ("intake", "*"), ("pause", "agent:refunds"),
    ]  # fmt: skip
    assert switches.holding(f.run.db, begun) == []
