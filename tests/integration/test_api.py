"""The control API: who is let in, what opens a thread, what is shown of it, and what is refused with nothing stored."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from starlette.routing import Route

from console.api import routes as api_routes
from console.migrate import ROOT
from tests.agents.notes.tools import KeepNote
from tests.callers import Callers, callers, dump
from tests.hands import change, once, together
from tests.harness import Fleet, fleet
from twelvefold import Budget, Done, Task, Text, on, to
from twelvefold.events import CancelAsked
from twelvefold.tool import Tool
from workers.store.tokens import ROLES


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="done"))


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agents are done at once."""
    with fleet(fresh_database, done) as found:
        yield found


@pytest.fixture
def api(f: Fleet) -> Iterator[Callers]:
    """Its API."""
    with callers(f) as found:
        yield found


def test_a_message_opens_a_thread_of_the_named_agent_before_anything_is_asked(f: Fleet, api: Callers) -> None:
    answer = api.post("/thread", {"message": "buy milk", "agent": "notes"})
    assert answer.status_code == 202
    found = answer.json()
    task = found["thread_id"]
    assert found == {
        "thread_id": task, "agent": "notes", "status": "ready", "events": [],
        "response_url": f"/thread/{task}/response", "events_url": f"/thread/{task}/events",
    }  # fmt: skip
    row = f.run.db.rows("SELECT source, sender, proof, payload, tenant FROM arrivals")[0]
    assert (row["source"], row["sender"], row["tenant"]) == ("api", "ann@example.org", "t1")
    assert row["payload"] == {"text": "buy milk", "subject": "", "sender": "ann@example.org"}
    assert row["proof"].startswith("token:")
    assert f.drain(task) == "done"


def test_an_event_opens_a_thread_when_it_is_what_the_agent_accepts(f: Fleet, api: Callers) -> None:
    answer = api.post("/thread", {"event": {"text": "as data", "subject": "s"}, "agent": "notes"})
    assert answer.status_code == 202
    boss = api.post("/thread", {"event": {"text": "pay", "sender": "boss@example.org"}, "agent": "notes"}).json()
    sent = "SELECT payload ->> 'sender' FROM arrivals WHERE task_id = %(id)s"
    assert f.one(sent, id=boss["thread_id"]) == "ann@example.org", "nobody speaks for another"
    before = dump(f)
    answer = api.post("/thread", {"event": {"words": 1}, "agent": "notes"})
    assert answer.status_code == 400
    assert answer.json()["errors"] == [{"member": "text", "problem": "Field required"}]
    assert "properties" in answer.json()["accepts"]
    assert api.post("/thread", {"event": {"text": "x"}}).status_code == 400, "an event is never routed"
    assert dump(f) == before


def test_a_message_without_an_agent_is_routed_by_code(f: Fleet, api: Callers) -> None:
    assert api.post("/thread", {"message": "A Refund, please"}).json()["agent"] == "refunds"
    assert api.post("/thread", {"message": "anything else"}).json()["agent"] == "notes"


@pytest.mark.parametrize(("triggers", "reason"), [([], "no_binding"), ([on.api(lambda text: True)], "ambiguous")])
def test_a_message_that_nobody_or_everybody_takes_is_kept_with_the_reason(f: Fleet, triggers: Any, reason: str) -> None:
    change(f, "notes", triggers=triggers)
    with callers(f) as api:
        first = api.post("/thread", {"message": "a refund" if triggers else "hello"}, key="k")
        again = api.post("/thread", {"message": "a refund" if triggers else "hello"}, key="k")
    assert first.status_code == again.status_code == 404
    assert first.json() == again.json()
    assert {"name": "notes", "takes_message": True} in first.json()["agents"]
    rows = f.run.db.rows("SELECT state, reason, task_id FROM arrivals")
    assert rows == [{"state": "ignored", "reason": reason, "task_id": None}]
    assert f.one("SELECT count(*) FROM agent_tasks") == 0


BAD: list[tuple[Any, int]] = [
    (b"{", 400),
    (b"[1]", 400),
    (b'"text"', 400),
    (b'{"message": "a", "message": "b"}', 400),
    (b'{"message": NaN}', 400),
    (b"\xff", 400),
    ({}, 400),
    ({"message": ""}, 400),
    ({"message": " \n"}, 400),
    ({"message": 1}, 400),
    ({"message": "a", "event": {}}, 400),
    ({"message": "a", "agents": "notes"}, 400),
    ({"message": "a", "agent": "nobody"}, 404),
    ({"message": "a", "agent": ""}, 400),
    ({"message": "a", "agent": "notes", "budget": {"decisions": 0}}, 400),
    ({"message": "a", "agent": "notes", "budget": {"decisions": 51}}, 400),
    ({"message": "a", "agent": "notes", "budget": {"usd": "1e9"}}, 400),
    ({"message": "a", "agent": "notes", "budget": {"beer": 1}}, 400),
    ({"message": "a", "agent": "notes", "delivery": "eve@example.org"}, 400),
    ({"message": "a", "agent": "notes", "delivery": "https://example.org/hook"}, 400),
    ({"message": "a", "agent": "notes", "delivery": []}, 400),
    ({"message": "a", "agent": "notes", "business_ref": "x" * 256}, 400),
    ({"message": "a", "agent": "notes", "business_ref": "x\nBcc: y"}, 400),
    (b"", 400),
    (b'{"message": "' + b"x" * 1_000_000 + b'"}', 413),
    (b"x" * 10_000_000, 413),
]


def test_a_bad_body_is_refused_with_what_to_do_and_nothing_is_stored(f: Fleet, api: Callers) -> None:
    api.token("requester", "approver")
    before = dump(f)
    for body, status in BAD:
        answer = api.post("/thread", body)
        assert answer.status_code == status, body
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status and len(answer.json()["detail"]) > 10
        assert dump(f) == before, body


def test_a_compressed_body_is_capped_by_what_it_holds(f: Fleet, api: Callers) -> None:
    def posted(text: str) -> int:
        body = gzip.compress(json.dumps({"message": text, "agent": "notes"}).encode())
        return int(api.post("/thread", body, headers={"Content-Encoding": "gzip"}).status_code)

    assert posted("small") == 202
    assert posted("x" * 5_000_000) == 413
    assert f.one("SELECT count(*) FROM arrivals") == 1


def test_characters_that_cannot_be_stored_are_replaced_and_counted(f: Fleet, api: Callers) -> None:
    body = b'{"message": "a\\u0000b\\ud800c", "agent": "notes", "business_ref": "o\\u0000"}'
    answer = api.post("/thread", body)
    assert answer.status_code == 202
    row = f.run.db.rows("SELECT payload ->> 'text' AS text, cleaned FROM arrivals")[0]
    assert row == {"text": "a\ufffdb\ufffdc", "cleaned": 3}
    assert f.drain(answer.json()["thread_id"]) == "done"


NOBODY: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer tf_" + "x" * 43},
    {"Authorization": "Basic dXNlcjpwdw=="},
    {"Authorization": "Bearer ' OR 1=1 --"},
]


def test_without_a_known_token_nothing_is_told(f: Fleet, api: Callers) -> None:
    task = f.open()
    before = dump(f)
    for headers in NOBODY:
        for method, path in [
            ("GET", "/thread"),
            ("POST", "/thread"),
            ("GET", f"/thread/{task}"),
            ("GET", f"/thread/{task}/events"),
            ("POST", f"/thread/{task}/response"),
            ("GET", "/approvals"),
        ]:
            answer = api.client.request(method, path, headers=headers, content=b"{}" if method == "POST" else None)
            assert answer.status_code == 401, (headers, method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer ")
            assert "token new" in answer.json()["detail"]
    assert dump(f) == before


def test_two_authorization_headers_are_one_too_many(api: Callers) -> None:
    given = [("Authorization", api.bearer("reader")["Authorization"])] * 2
    assert api.client.get("/thread", headers=given).status_code == 401


def test_a_token_that_was_revoked_is_refused_by_the_next_request(f: Fleet, api: Callers) -> None:
    assert api.get("/thread").status_code == 200
    with f.run.db.connection() as connection:
        connection.execute("UPDATE tokens SET revoked_at = clock_timestamp()")
    assert api.get("/thread").status_code == 401


def test_each_role_may_do_its_part_and_no_more(f: Fleet, api: Callers) -> None:
    task = f.open()
    launch = {"message": "a", "agent": "notes"}
    for role in ("viewer", "reader", "approver", "operator"):
        answer = api.post("/thread", launch, role)
        assert answer.status_code == 403 and "requester" in answer.json()["detail"]
    assert api.post("/thread", launch, "requester").status_code == 202
    assert api.post("/thread", launch, "admin").status_code == 202
    words, yes = {"type": "response", "response": "x"}, {"type": "approval", "approved": True}
    assert api.post(f"/thread/{task}/response", words, "approver").status_code == 403
    assert api.post(f"/thread/{task}/response", yes, "requester").status_code == 403
    assert api.post(f"/thread/{task}/response", words, "reader").status_code == 403
    assert f.one("SELECT count(*) FROM arrivals") == 3


def test_an_agent_that_is_not_its_own_is_closed_to_a_token(f: Fleet, api: Callers) -> None:
    notes, refunds = f.open("notes"), f.open("refunds")
    mine: Any = {"agents": ["notes"]}
    assert api.get(f"/thread/{notes}", **mine).status_code == 200
    for path in (f"/thread/{refunds}", f"/thread/{refunds}/events", "/thread?agent=refunds"):
        assert api.get(path, **mine).status_code == 403
    assert [row["thread_id"] for row in api.get("/thread", **mine).json()["threads"]] == [notes]
    words = {"type": "response", "response": "x"}
    assert api.post(f"/thread/{refunds}/response", words, **mine).status_code == 403
    assert api.post("/thread", {"message": "a", "agent": "refunds"}, **mine).status_code == 403
    assert api.post("/thread", {"message": "a refund"}, **mine).status_code == 403, "routed there"
    agents = api.post("/thread", {"message": "a", "agent": "nobody"}, **mine).json()["agents"]
    assert [each["name"] for each in agents] == ["notes"]
    assert f.one("SELECT count(*) FROM arrivals") == 2


def test_another_tenants_thread_is_not_there(f: Fleet, api: Callers) -> None:
    task = f.open(tenant="t1")
    for path in (f"/thread/{task}", f"/thread/{task}/events", f"/thread/{uuid4()}", "/thread/no-id"):
        answer = api.get(path, tenant="t2")
        assert answer.status_code == 404
        assert answer.json() == api.get(f"/thread/{uuid4()}", tenant="t2").json(), "no difference to see"
    words = {"type": "response", "response": "x"}
    assert api.post(f"/thread/{task}/response", words, tenant="t2").status_code == 404
    assert api.get("/thread", tenant="t2").json()["threads"] == []
    assert f.row(task)["inbox_pending"] == 1


def test_a_repeat_with_its_key_gets_the_same_thread_and_another_body_does_not(f: Fleet, api: Callers) -> None:
    wish = {"message": "buy milk", "agent": "notes"}
    answers = together(*[lambda: api.post("/thread", wish, key="k-1")] * 20)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["thread_id"] for answer in answers}) == 1
    assert f.one("SELECT count(*) FROM agent_tasks") == 1
    other = api.post("/thread", {**wish, "message": "buy beer"}, key="k-1")
    assert other.status_code == 409 and other.json()["code"] == "idempotency_key_used"
    assert api.post("/thread", wish, key="k-2").json()["thread_id"] != answers[0].json()["thread_id"]
    theirs = api.post("/thread", {"message": "mine", "agent": "notes"}, key="k-1", by="bob@example.org")
    assert theirs.status_code == 202, "a key is its principal's own"
    same = [api.post("/thread", wish, key=key, by=by) for key, by in (("k", "a:k a"), ("k:a", "k a"), ("k:a:k", "a"))]
    assert len({answer.json()["thread_id"] for answer in same}) == 3
    for bad in ("", "a b", "x" * 256, "\u00e9".encode()):
        assert api.post("/thread", wish, key=bad).status_code == 400  # type: ignore[arg-type]


def test_a_thread_keeps_the_budget_reference_and_destinations_of_its_opener(f: Fleet, api: Callers) -> None:
    answer = api.post("/thread", {
        "message": "a", "agent": "notes", "business_ref": "order-7", "budget": {"decisions": 3, "usd": "0.10"},
        "delivery": ["log", "Ann@example.org"],
    })  # fmt: skip
    task = answer.json()["thread_id"]
    shown = api.get(f"/thread/{task}").json()
    assert shown["business_ref"] == "order-7"
    assert (shown["budget"]["left"]["decisions"], shown["budget"]["left"]["usd"]) == (3, "0.10")
    assert f.drain(task) == "done"
    sent = f.run.db.rows("SELECT channel, recipient FROM outbox ORDER BY 1")
    assert [(row["channel"], row["recipient"]) for row in sent] == [("email", "ann@example.org"), ("log", "notes")]
    assert f.state(task).budget == f.run.registry["notes"].agent.budget.model_copy(
        update={"decisions": 3, "usd": Budget(usd="0.10").usd}  # type: ignore[arg-type]
    )


def test_a_refused_destination_teaches_the_ones_there_are(f: Fleet, api: Callers) -> None:
    change(f, "notes", delivery=[to.email("ops@example.org")])
    with callers(f) as api:
        answer = api.post("/thread", {"message": "a", "agent": "notes", "delivery": "slack"})
    assert answer.status_code == 400
    assert answer.json()["destinations"] == ["email", "ann@example.org"]


def test_a_thread_is_shown_with_what_it_waits_for_and_a_viewer_sees_no_content(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD SECRET"))) as f, callers(f) as api:
        task = f.open(text="a secret message")
        assert f.drain(task) == "waiting"
        shown = api.get(f"/thread/{task}").json()
        waiting = shown["waiting"]
        assert (waiting["kind"], waiting["tool"], waiting["args"]) == ("approval", "keep_note", {"text": "LOUD SECRET"})
        assert waiting["responders"] == ["#notes"] and waiting["risk"] == "medium"
        assert waiting["since"] < waiting["deadline"]
        assert (shown["awaitingHumanApproval"], shown["awaitingHumanResponse"]) == (True, False)
        assert shown["budget"]["used"]["decisions"] == 1 and shown["budget"]["left"]["decisions"] == 49
        assert [event["type"] for event in shown["events"]] == f.kinds(task)
        last = shown["events"][-1]["data"]
        assert (last["intent"], last["text"], last["call_id"]) == ("keep_note", "LOUD SECRET", waiting["call_id"])
        assert last["response_url"] == f"/thread/{task}/response/{waiting['call_id']}"
        for path in (f"/thread/{task}", f"/thread/{task}/events", "/thread", "/approvals"):
            text = api.get(path, "viewer").text
            assert task in text and "SECRET" not in text and "secret" not in text
        viewed = api.get(f"/thread/{task}", "viewer").json()
        assert viewed["waiting"]["args"] is None and viewed["outcome"] is None
        assert viewed["events"][0].keys() == {"seq", "at", "type"}
        open_ = api.get("/approvals").json()["approvals"]
        assert [(each["thread_id"], each["tool"], each["args"]) for each in open_] == [
            (task, "keep_note", {"text": "LOUD SECRET"})
        ]
        assert "response_url" not in str(f.run.db.rows("SELECT data FROM agent_events")), "rendering only"


def test_a_log_is_paged_and_its_newest_end_shown(f: Fleet, api: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    task = f.open()
    f.drain(task)
    kinds, got, after = f.kinds(task), [], 0
    while after is not None:
        page = api.get(f"/thread/{task}/events?after={after}&limit=2").json()
        got += [event["type"] for event in page["events"]]
        after = page["next"]
    assert got == kinds
    monkeypatch.setattr("console.api.look.NEWEST", 2)
    shown = api.get(f"/thread/{task}").json()
    assert [event["type"] for event in shown["events"]] == kinds[-2:] and shown["earlier_events"]
    assert shown["events"][-1]["data"]["intent"] == "done_for_now"
    assert shown["outcome"] == {"text": "done"}
    assert api.get(f"/thread/{task}/events?after=-1").status_code == 400
    assert api.get(f"/thread/{task}?beer=1").status_code == 400


def test_threads_are_filtered_and_paged(f: Fleet, api: Callers) -> None:
    tasks = [f.open() for _ in range(3)] + [f.open("refunds")]
    f.drain(tasks[0])

    def ids(query: str) -> list[str]:
        return [row["thread_id"] for row in api.get(f"/thread?{query}").json()["threads"]]

    assert ids("") == tasks[::-1]
    assert ids("status=done") == [tasks[0]]
    assert ids("agent=refunds") == [tasks[3]]
    assert ids("waiting_for=approval") == [] and ids("business_ref=none") == []
    page = api.get("/thread?limit=3").json()
    assert ids(f"limit=3&before={page['next']}") == [tasks[0]]
    assert api.get(f"/thread?before={tasks[0]}").json() == {"threads": [], "next": None}
    for bad in ("status=beer", "limit=0", "limit=201", "before=x", "colour=red"):
        answer = api.get(f"/thread?{bad}")
        assert answer.status_code == 400 and bad.partition("=")[0] in answer.json()["detail"]
    for bad in ("agent=a%00b", "business_ref=%00", "waiting_for=%00", "%00=1", "agent=%E2%80%AE"):
        assert api.get(f"/thread?{bad}").status_code == 400
    assert ids("business_ref=%ED%A0%80") == ids("agent=%27;%20DROP") == []


def test_an_operator_stops_and_goes_on(f: Fleet, api: Callers) -> None:
    task = f.open()

    def verb(name: str, body: Any = b"", role: Any = "operator", **who: Any) -> int:
        return int(api.post(f"/thread/{task}/{name}", body, role, **who).status_code)

    for role in ("viewer", "reader", "requester", "approver"):
        assert verb("pause", role=role) == 403
    assert verb("pause", tenant="t2") == 404 and verb("pause", agents=["refunds"]) == 403
    assert verb("pause") == 202 and api.get(f"/thread/{task}").json()["paused"]
    assert f.step(task) == "nothing"
    assert verb("resume") == 202 and verb("retry") == 409
    assert verb("cancel", {"beer": 1}) == verb("pause", {"reason": "x"}) == 400
    assert verb("cancel", {"reason": "no longer needed"}) == verb("cancel") == 202
    assert f.drain(task) == "cancelled"
    asked = next(event for event in f.events(task) if isinstance(event, CancelAsked))
    assert (asked.by, asked.reason) == ("ann@example.org", "no longer needed")
    assert verb("cancel") == 202 and verb("retry") == 409


def test_a_hundred_looks_at_once_change_nothing(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f, callers(f) as api:
        task = f.open()
        f.drain(task)
        api.token("reader")
        before = dump(f)
        paths = [f"/thread/{task}", f"/thread/{task}/events", "/thread", "/approvals"] * 25
        answers = together(*[lambda path=path: api.get(path) for path in paths])
        assert {answer.status_code for answer in answers} == {200}
        for path in (*paths[:4], f"/thread/{task}/response", f"/thread/{task}/cancel"):
            for method in ("HEAD", "OPTIONS", "GET"):
                api.client.request(method, path, headers=api.bearer("reader"))
        assert dump(f) == before


def test_the_page_about_the_api_lists_every_address_and_no_other(api: Callers) -> None:
    page = (ROOT / "docs" / "control-api.md").read_text()
    told = re.findall(r"^\| `(GET|POST) (/\S*)` \|", page, re.MULTILINE)
    served = [
        (method, route.path)
        for route in api_routes(api.held)
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    ]
    assert sorted(told) == sorted(served)
    assert set(re.findall(r"^\| `(\w+)` \| (?:see|also|all)", page, re.MULTILINE)) == set(ROLES)


def test_the_api_describes_itself_to_whoever_reaches_it_and_shows_nothing_of_anybody(f: Fleet, api: Callers) -> None:
    f.open(text="a secret matter")
    document, page = api.client.get("/openapi.json"), api.client.get("/docs")
    assert document.status_code == page.status_code == 200
    assert document.json()["openapi"].startswith("3.1") and "/thread/{id}/raise" in document.json()["paths"]
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "notes" not in document.text and "secret matter" not in document.text + page.text


def test_the_api_and_its_answers_hold_no_secret(f: Fleet, api: Callers, capfd: pytest.CaptureFixture[str]) -> None:
    secret = api.token("requester")
    body = {"message": "a", "agent": "notes"}
    sent = [api.post("/thread", body, "requester"), api.get(f"/thread/{uuid4()}", "requester")]
    api.client.get("/thread", headers={"Authorization": f"Bearer {secret}x"})
    everything = str(dump(f)) + "".join(answer.text for answer in sent) + "".join(capfd.readouterr())
    assert "ann@example.org" in everything
    assert secret not in everything and secret.removeprefix("tf_") not in everything


def test_a_database_that_is_gone_is_told_as_unavailable(f: Fleet) -> None:
    gone = SecretStr("postgresql://twelvefold_app@127.0.0.1:1/nowhere")
    f.settings = f.settings.model_copy(update={"database_url": gone})
    with callers(f) as api:
        answer = api.client.get("/thread", headers={"Authorization": "Bearer tf_" + "x" * 43})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
    assert "127.0.0.1" not in answer.text


def test_a_bug_of_ours_is_told_without_what_it_says(
    f: Fleet, api: Callers, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("content of a row")

    monkeypatch.setattr("console.api.look.threads.tasks", broken)
    answer = api.get("/thread")
    assert answer.status_code == 500
    assert "content of a row" not in answer.text + "".join(capfd.readouterr())
