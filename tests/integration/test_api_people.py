"""What the API knows of people beside single decisions: addresses of one call, votes, many decisions, grants, doubt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.callers import Callers, callers
from tests.curious import ANN as ANNE
from tests.curious import WHICH, ask_by, curious
from tests.deciding import ANN, BEN, CLEO, Send, waits
from tests.hands import change, due, once
from tests.harness import fleet
from twelvefold import Done, Effect, Task, Text, ask
from twelvefold.tool import Ctx, Tool


def always(task: Task) -> Tool[Any]:
    """Asks which, again and again, until it is told."""
    answered = task.state.tally("ask_human").count
    return Done(outcome=Text(text="over")) if answered else WHICH


def test_what_is_sent_to_the_address_of_a_call_reaches_that_call_or_none(fresh_database: Any) -> None:
    with curious(fresh_database, always) as f, callers(f) as api:
        one, two = ask_by(f), ask_by(f)
        urls = [api.get(f"/thread/{task}").json()["response_url"] for task in (one, two)]
        calls = [f.state(task).call.seq for task in (one, two)]  # type: ignore[union-attr]
        assert urls == [f"/thread/{t}/response/{c}" for t, c in zip((one, two), calls, strict=True)]
        said = {"type": "response", "response": "Refund"}
        # answered in reverse, each reaches its own
        second = api.post(urls[1], said, by=ANNE)
        assert (second.status_code, second.json()["thread_id"]) == (202, two)
        # the first expires, and its successor is open: the late answer reaches nobody
        due(f, one)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = now() - interval '1 s' WHERE task_id = %s", (one,))
        assert f.drain(one) == "waiting"
        assert api.post(urls[0], said, by=ANNE).status_code == 410
        newer = api.get(f"/thread/{one}").json()
        assert newer["response_url"] != urls[0] and newer["events"][-1]["data"]["response_url"] == newer["response_url"]
        assert api.post(urls[0], {**said, "call_id": 999}, by=ANNE).status_code == 400
        assert api.post(f"/thread/{one}/response/x", said, by=ANNE).status_code == 404
        assert api.post(newer["response_url"], said, by=ANNE).json()["thread_id"] == one
        assert f.drain(one) == "done" and f.drain(two) == "done"
        assert api.get(f"/thread/{one}").json()["response_url"] == f"/thread/{one}/response"


def test_votes_and_what_they_have_to_be_are_shown_and_many_calls_are_decided_at_once(fresh_database: Any) -> None:
    rules: dict[int, dict[str, Any]] = {1: {}, 2: {"quorum": 2}, 3: {"four_eyes": True}, 4: {}}
    rule = lambda call, task: ask(f"{ANN}, {BEN}", "why", **rules[call.count])  # noqa: E731
    with waits(fresh_database, rule, script=lambda task: _send(task)) as w, callers(w.fleet) as api:
        f = w.fleet
        tasks = [f.open("signoff", str(number)) for number in (1, 2, 3, 4)]
        assert {f.drain(task) for task in tasks} == {"waiting"}
        shown = {row["thread_id"]: row for row in api.get("/approvals").json()["approvals"]}
        assert shown[tasks[1]]["response_url"] == f"/thread/{tasks[1]}/response/{shown[tasks[1]]['call_id']}"
        say = [
            {"thread_id": t, "call_id": shown[t]["call_id"], "digest": shown[t]["digest"], "approved": True}
            for t in tasks
        ]
        say[3]["digest"] = "0" * 64
        foreign = {**say[0], "thread_id": "00000000-0000-7000-8000-000000000000"}
        answer = api.post("/approvals", {"decisions": [*say, foreign]}, by=ANN)
        found = answer.json()["decisions"]
        assert answer.status_code == 202
        assert [(one["status"], one.get("decision", one.get("code"))) for one in found] == [
            (202, "approved"), (202, "voted"), (403, "four_eyes"), (409, None), (404, None),
        ]  # fmt: skip
        assert [one["status"] for one in api.post("/approvals", {"decisions": say}, by=ANN).json()["decisions"]] == [
            202, 202, 403, 409,
        ], "the same again is answered alike"  # fmt: skip
        others = api.post("/approvals", {"decisions": say[:2]}, by=CLEO).json()["decisions"]
        assert [one["status"] for one in others] == [403, 403]
        rows = {row["thread_id"]: (row["votes"], row["quorum"]) for row in api.get("/approvals").json()["approvals"]}
        assert rows[tasks[1]] == (1, 2) and rows[tasks[2]] == (0, 1) and tasks[0] not in rows
        assert api.get(f"/thread/{tasks[1]}").json()["waiting"]["votes"] == 1
        assert api.post("/approvals", {"decisions": say}, "operator").status_code == 403
        assert [f.drain(task) for task in tasks[:2]] == ["done", "nothing"] and w.sent == ["1 x a box of pears"]


def _send(task: Task) -> Tool[Any]:
    known = task.state.tally("send")
    over = known.count or known.denied
    text = task.event.text
    return Done(outcome=Text(text="over")) if over else Send(count=int(text) if text.isdecimal() else 1)


def test_grants_are_seen_and_ended_over_http_by_their_own_tenant(fresh_database: Any) -> None:
    rule = lambda call, task: ask(f"{ANN}, {BEN}", "why", deadline=timedelta(hours=2))  # noqa: E731
    with waits(fresh_database, rule) as w, callers(w.fleet) as api:
        body = {"type": "approval", "approved": True, "call_id": w.row["call"], "digest": w.row["digest"],
                "grant": {"hours": 4, "same": ["item"]}}  # fmt: skip
        assert api.post(f"/thread/{w.task}/response", body, by=ANN).status_code == 202
        [grant] = api.get("/grants").json()["grants"]
        assert (grant["tool"], grant["by"], grant["same"]) == ("send", ANN, {"item": "a box of pears"})
        assert grant["thread_id"] is None and grant["revoked_at"] is None
        assert api.get("/grants", "viewer").json()["grants"][0]["same"] is None, "arguments are content"
        assert api.get("/grants", tenant="t2").json() == api.get("/grants", agents=["notes"]).json() == {"grants": []}
        path = f"/grants/{grant['id']}/revoke"
        assert api.post(path, {}, "operator", tenant="t2").status_code == 404
        assert api.post(path, {}, "operator", agents=["notes"]).status_code == 403
        assert api.post(path, {}, "requester").status_code == 403
        assert api.post(path, {}, "approver", by=BEN).json()["revoked_by"] == BEN
        assert api.post(path, {}, "operator", by="root").json()["revoked_by"] == BEN, "the first stays"
        w.fleet.drain(w.task)
        again = w.fleet.open("signoff")
        assert w.fleet.drain(again) == "waiting", "what was granted is asked about again"


class Fire(Effect[int]):
    """Fire once. Use when it is time."""

    def run(self, ctx: Ctx) -> int:
        """Nobody can tell whether it did."""
        raise RuntimeError


def test_a_doubt_is_settled_over_http_by_an_operator(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Fire())) as f:
        change(f, "signoff", tools=[Fire], delivery=[])
        task = f.open("signoff")
        assert f.drain(task) == "waiting" and f.row(task)["waiting_for"] == "settle"
        call = f.state(task).call
        assert call is not None
        path, body = f"/thread/{task}/settle", {"call_id": call.seq, "how": "happened", "result": 7}
        with callers(f) as api:
            _settle(api, path, body)
        assert f.drain(task) == "done"


def _settle(api: Callers, path: str, body: dict[str, Any]) -> None:
    assert api.post(path, body, "approver").status_code == 403
    assert api.post(path, body, "operator", tenant="t2").status_code == 404
    assert api.post(path, {**body, "call_id": 99}, "operator").status_code == 409
    assert api.post(path, {**body, "result": "seven"}, "operator").status_code == 409
    assert api.post(path, body, "operator").status_code == 202
