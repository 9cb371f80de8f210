"""The operators' verbs over HTTP: switches, raises, retries and outside events, each safe to be sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.callers import Callers, callers, dump
from tests.hands import change, once
from tests.harness import Fleet, fleet
from triggers import envelope
from twelvefold import Budget, Done, Task, Text, Wait, Wake, on
from twelvefold.agent import Message
from twelvefold.budget import Usage
from twelvefold.events import Arrived
from twelvefold.tool import Tool
from workers.store import sweeps


def waits(task: Task) -> Tool[Any]:
    """Wait for the parcel of the message, then be done."""
    return Done(outcome=Text(text="here")) if task.did(Wait) else Wait(why="x", event=f"parcel {task.event.text}")


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents wait for a parcel."""
    with fleet(fresh_database, waits) as found:
        yield found


@pytest.fixture
def api(f: Fleet) -> Iterator[Callers]:
    """Its API."""
    with callers(f) as found:
        yield found


def test_a_tenants_operator_throws_and_lifts_switches_of_its_own(f: Fleet, api: Callers) -> None:
    mine, other = f.open(), f.open(tenant="t2")
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for body in ({"kind": "pause", "scope": "*"}, {"kind": "pause", "scope": "*", "until": end, "reason": "moving"}):
        answer = api.post("/switches", body, "operator")
        assert answer.status_code == 202
        assert answer.json() == {"accepted": True, "kind": "pause", "scope": "*", "begun": []}
    assert f.step(mine) == "nothing" and f.drain(other) == "waiting"
    (held,) = api.get("/switches").json()["switches"]
    assert (held["kind"], held["reason"], held["by"], held["everywhere"]) == (
        "pause", "moving", "ann@example.org", False,
    )  # fmt: skip
    assert api.get(f"/thread/{mine}").json()["switches"] == [
        {"kind": "pause", "scope": "*", "until": held["until"], "reason": "moving"}
    ]
    assert "reason" not in api.get(f"/thread/{mine}", "viewer").json()["switches"][0]
    assert api.get("/switches", tenant="t2").json()["switches"] == []
    lift = {"kind": "pause", "scope": "*"}
    assert api.post("/switches/lift", lift, "operator", tenant="t2").json()["held"] is False
    assert [api.post("/switches/lift", lift, "operator").json()["held"] for _ in range(2)] == [True, False]
    assert f.drain(mine) == "waiting"


def test_a_switch_for_every_tenant_is_seen_by_all_and_lifted_by_none_of_them(f: Fleet, api: Callers) -> None:
    f.switches.freeze("*", by="root", reason="quarter end")
    (held,) = api.get("/switches").json()["switches"]
    assert held["everywhere"] and held["reason"] == "quarter end"
    assert api.post("/switches/lift", {"kind": "freeze", "scope": "*"}, "admin").json()["held"] is False


BAD: list[Any] = [
    ({"kind": "freeze"}, 400),
    ({"kind": "burn", "scope": "*"}, 400),
    ({"kind": "freeze", "scope": "notes"}, 400),
    ({"kind": "pause", "scope": "tool:pay"}, 400),
    ({"kind": "freeze", "scope": "*", "until": "2020-01-01T00:00:00Z"}, 400),
    ({"kind": "freeze", "scope": "*", "until": "2120-01-01T00:00:00"}, 400),
    ({"kind": "freeze", "scope": "*", "tenant": "*"}, 400),
]


@pytest.mark.parametrize(("body", "status"), BAD)
def test_a_bad_switch_is_refused_with_what_to_do_and_nothing_is_stored(
    f: Fleet, api: Callers, body: Any, status: int
) -> None:
    api.token("operator")
    before = dump(f)
    answer = api.post("/switches", body, "operator")
    assert answer.status_code == status and answer.json()["detail"]
    assert dump(f) == before


def test_only_an_operator_of_the_agent_throws_its_switches(f: Fleet, api: Callers) -> None:
    body = {"kind": "freeze", "scope": "agent:notes"}
    for role in ("viewer", "reader", "requester", "approver"):
        assert api.post("/switches", body, role).status_code == 403
        assert api.post("/switches/lift", body, role).status_code == 403
    mine: Any = {"agents": ["notes"]}
    for scope in ("*", "agent:refunds", "tool:pay"):
        assert api.post("/switches", {"kind": "freeze", "scope": scope}, "operator", **mine).status_code == 403
    assert api.post("/switches", body, "operator", **mine).status_code == 202


def test_what_had_begun_is_told_by_the_switch(f: Fleet, api: Callers) -> None:
    task = f.open()
    f.drain(task)
    with f.run.db.connection() as connection:
        connection.execute(
            "UPDATE agent_tasks SET status = 'ready',"
            ' state = jsonb_set(state, \'{call}\', \'{"seq": 3, "tool": "pay", "phase": "begun"}\')'
            " WHERE id = %s",
            (task,),
        )
    answer = api.post("/switches", {"kind": "freeze", "scope": "tool:pay"}, "operator").json()
    assert answer["begun"] == [{"thread_id": task, "call_id": 3, "tool": "pay"}]


def test_a_used_up_budget_is_raised_once_for_each_key(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        change(f, "notes", budget=Budget(decisions=1))
        with callers(f) as api:
            task = f.open()
            assert f.drain(task) == "waiting"
            more = {"decisions": 4, "usd": "0.25", "active": 90}
            for role in ("requester", "approver", "reader"):
                assert api.post(f"/thread/{task}/raise", more, role).status_code == 403
            for _ in range(3):
                assert api.post(f"/thread/{task}/raise", more, "operator", key="r1").status_code == 202
            assert api.post(f"/thread/{task}/raise", {"decisions": 5}, "operator", key="r1").status_code == 409
            assert f.drain(task) == "done"
            assert f.state(task).extra == Usage(decisions=4, usd=Decimal("0.25"), active_ms=90_000)
            assert api.post(f"/thread/{task}/raise", more, "operator", key="r2").status_code == 409, "it has ended"


@pytest.mark.parametrize(
    "body",
    [{}, {"decisions": 0}, {"decisions": -1}, {"usd": "NaN"}, {"usd": "1e40"}, {"deadline": "tomorrow"}, {"x": 1},
     {"deadline": "2020-01-01T00:00:00Z"}, {"active": "P400D"}],
)  # fmt: skip
def test_a_raise_that_adds_nothing_sensible_is_refused(f: Fleet, api: Callers, body: Any) -> None:
    task = f.open()
    api.token("operator")
    before = dump(f)
    answer = api.post(f"/thread/{task}/raise", body, "operator")
    assert answer.status_code in (400, 409) and answer.json()["detail"]
    assert dump(f) == before


def test_a_quarantined_thread_is_retried_however_often_that_is_sent(fresh_database: Any) -> None:
    with fleet(fresh_database, waits) as f, callers(f) as api:
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET attempts = 3 WHERE id = %s", (task,))
        assert f.drain(task) == "quarantined"
        shown = api.get(f"/thread/{task}").json()
        assert (shown["status"], shown["reason"]) == ("quarantined", "worker_lost x3")
        for key in (None, "k", "k"):
            assert api.post(f"/thread/{task}/retry", {}, "operator", key=key).status_code == 202
        assert f.drain(task) == "waiting"
        assert f.kinds(task).count("Resumed") == 1


def test_an_outside_event_wakes_its_waiter_among_others_and_is_known_again(f: Fleet, api: Callers) -> None:
    tasks = {name: f.open(text=name) for name in ("a", "b", "c")}
    assert [f.drain(task) for task in tasks.values()] == ["waiting"] * 3
    body = {"key": "parcel b", "data": {"weight": 3}}
    assert api.post("/events", body, "reader").status_code == 403
    assert api.post("/events", body, "requester", agents=["notes"]).status_code == 403
    for _ in range(2):
        answer = api.post("/events", body, "requester", key="e1")
        assert answer.status_code == 202
        assert answer.json() == {"accepted": True, "key": "parcel b", "thread_id": tasks["b"]}
    assert api.post("/events", {**body, "data": 1}, "requester", key="e1").status_code == 409
    assert [f.drain(task) for task in tasks.values()] == ["nothing", "done", "nothing"]
    early = api.post("/events", {"key": "parcel d"}, "requester", key="e2")
    assert early.json()["thread_id"] is None
    assert f.drain(f.open(text="d")) == "done", "it came before its waiter"
    for bad in ({}, {"key": ""}, {"key": "x" * 201}, {"key": "a", "more": 1}):
        assert api.post("/events", bad, "requester").status_code == 400


def test_a_delivery_that_is_an_event_wakes_its_waiter_and_opens_nothing(fresh_database: Any) -> None:
    def read(payload: dict[str, Any]) -> Any:
        return Wake(payload["parcel"], {"weight": payload["weight"]}) if "parcel" in payload else Message(text="new")

    def arrived(key: str, payload: Any) -> envelope.Arrived:
        return envelope.Arrived(
            tenant="t1", source="post", key=key, type="parcel", payload=payload, raw=b"{}", headers={}, sender=None,
            conversation=None, proof="hmac:generic#0",
        )  # fmt: skip

    with fleet(fresh_database, waits) as f:
        change(f, "notes", triggers=[on.webhook("post", type="parcel", read=read)])
        task = f.open(text="7")
        assert f.drain(task) == "waiting"
        for outcome in ("accepted", "duplicate"):
            verdict = f.intake.accept(arrived("d1", {"parcel": "parcel 7", "weight": 3}))
            assert (verdict.outcome, verdict.task_id) == (outcome, task)
        assert f.drain(task) == "done"
        (event,) = [e for e in f.events(task) if isinstance(e, Arrived) and e.kind == "event"]
        assert (event.wait_key, event.payload) == ("parcel 7", {"weight": 3})
        assert f.one("SELECT count(*) FROM agent_tasks") == 1
        assert f.intake.accept(arrived("d2", {"weight": 3})).task_id != task


def test_among_a_thousand_waiters_each_event_wakes_its_own_whichever_came_first(f: Fleet) -> None:
    first = f.open(text="0")
    assert f.drain(first) == "waiting"
    with f.run.db.connection() as connection:
        connection.execute(
            "INSERT INTO agent_tasks (id, tenant, agent, agent_version, status, waiting_for, state, state_version,"
            " seq, current_step, wait_key)"
            " SELECT gen_random_uuid(), tenant, agent, agent_version, status, waiting_for,"
            " jsonb_set(state, '{wait_key}', to_jsonb('parcel ' || n)), state_version, seq, current_step,"
            " 'parcel ' || n FROM agent_tasks, generate_series(1, 1000) AS n"
        )
    for n in (700, 1, 1000):
        verdict = f.intake.event("t1", f"parcel {n}", source="post", key=f"e{n}", payload={"n": n})
        assert verdict.task_id is not None
        assert f.row(verdict.task_id)["wait_key"] == f"parcel {n}"
    assert f.one("SELECT count(*) FROM agent_tasks WHERE status = 'ready'") == 3
    for n in (1001, 1002):
        assert f.intake.event("t1", f"parcel {n}", source="post", key=f"e{n}", payload={"n": n}).reason == "no_waiter"
    late = [f.open(text=str(n)) for n in (1002, 1001)]
    assert [f.drain(task) for task in late] == ["done", "done"], "events that came before their waits"
    assert sweeps.make_due(f.run.db) == 0
