"""Words and decisions through the API: what a thread takes, and what is answered to whoever comes too late."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agents.signoff.tools import Ship
from tests.asked import asked as asked_by_mail
from tests.callers import Callers, callers, dump
from tests.hands import once, together
from tests.harness import Fleet, fleet
from twelvefold import Done, NothingToDo, Task, Text
from twelvefold.tool import Tool
from workers.operate import Refused

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"


def ship(**more: Any) -> Ship:
    """A call that ann and bob are asked about."""
    return Ship(item="pears", people=f"{ANN}, {BOB}", **more)


def asked(f: Fleet, api: Callers) -> tuple[str, dict[str, Any]]:
    """A thread that waits for a decision, and a body that approves what is shown."""
    task = f.open("signoff")
    assert f.drain(task) == "waiting"
    shown = api.get(f"/thread/{task}").json()["waiting"]
    return task, {"type": "approval", "approved": True, "call_id": shown["call_id"], "digest": shown["digest"]}


def respond(api: Callers, task: str, body: Any, **who: Any) -> Any:
    """Post to the thread's response address."""
    return api.post(f"/thread/{task}/response", body, **who)


def flags(answer: Any) -> tuple[bool, bool]:
    """The two flags of an answer that says what the thread waits for."""
    found = answer.json()
    return found["awaitingHumanResponse"], found["awaitingHumanApproval"]


def shipped(f: Fleet) -> int:
    """How often something was shipped."""
    return int(f.one("SELECT count(*) FROM notes"))


def test_an_approval_lets_the_call_run_and_an_equal_repeat_gets_the_same_answer(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        first = respond(api, task, {**yes, "comment": "go"})
        assert first.status_code == 202
        assert (first.json()["decision"], first.json()["decided_by"]) == ("approved", ANN)
        assert respond(api, task, yes, by=BOB).json() == first.json(), "whoever repeats it learns who decided"
        assert f.drain(task) == "done" and shipped(f) == 1
        assert respond(api, task, yes).json() == first.json(), "after the end too"
        no = respond(api, task, {**yes, "approved": False}, by=BOB)
        assert no.status_code == 409
        assert (no.json()["decided_by"], no.json()["decision"]) == (ANN, "approved")
        assert no.json()["decided_at"] == first.json()["decided_at"]
        assert f.drain(task) == "nothing" and shipped(f) == 1


def test_a_rejection_with_its_comment_reaches_the_agent(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        assert respond(api, task, {**yes, "approved": False, "comment": "not ripe"}).json()["decision"] == "rejected"
        assert f.drain(task) == "done" and shipped(f) == 0
        moved = next(e for e in api.get(f"/thread/{task}").json()["events"] if e["type"] == "ApprovalMoved")
        assert (moved["data"]["by"], moved["data"]["comment"]) == (ANN, "not ripe")


def test_fifty_equal_approvals_at_once_have_one_effect_and_fifty_equal_answers(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        who = (ANN, BOB)
        for by in who:
            api.token("requester", "approver", by=by)
        answers = together(*[lambda by=by: respond(api, task, yes, by=by) for by in who * 25])
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.text for answer in answers}) == 1
        assert f.one("SELECT count(*) FROM arrivals WHERE kind = 'decision' AND state = 'accepted'") == 1
        assert f.drain(task) == "done" and shipped(f) == 1


def test_of_yes_and_no_at_once_one_wins_and_the_others_learn_which(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        for by in (ANN, BOB):
            api.token("requester", "approver", by=by)
        acts = [
            lambda n=n: respond(api, task, {**yes, "approved": n % 2 == 0}, by=(ANN, BOB)[n % 2]) for n in range(10)
        ]
        answers = together(*acts)
        assert sorted(answer.status_code for answer in answers) == [202] * 5 + [409] * 5
        told = {(answer.json()["decision"], answer.json()["decided_by"]) for answer in answers}
        assert len(told) == 1, "all were told of the same decision"
        f.drain(task)
        assert shipped(f) == (1 if told == {("approved", ANN)} else 0)
        assert f.kinds(task).count("ApprovalMoved") == 1


def test_of_a_yes_by_mail_a_no_by_api_and_a_no_by_hand_at_once_one_decides(fresh_database: Any) -> None:
    with asked_by_mail(fresh_database, Ship(item="pears")) as a, callers(a.fleet) as api:
        call = api.get(f"/thread/{a.task}").json()["waiting"]
        no = {"type": "approval", "approved": False, "call_id": call["call_id"], "digest": call["digest"]}
        api.token("requester", "approver", by="ben@example.com")
        form = a.form("ann@example.com")
        page, posted, by_hand = together(
            lambda: a.all([("POST", a.path(), form)])[0],
            lambda: respond(api, a.task, no, by="ben@example.com"),
            lambda: a.fleet.operate.decide(a.task, call["call_id"], approved=False, by="cli:ops", proof="override"),
        )
        won = a.fleet.run.db.rows("SELECT state, decided_by FROM approvals")[0]
        assert posted.json()["decided_by"] == won["decided_by"] and won["decided_by"] in page.text
        assert page.status_code == (200 if won["state"] == "approved" else 409)
        assert posted.status_code == (202 if won["state"] == "rejected" else 409)
        assert isinstance(by_hand, Refused) == (won["state"] == "approved")
        assert a.fleet.one("SELECT count(*) FROM arrivals WHERE kind = 'decision' AND state = 'accepted'") == 1
        assert a.fleet.drain(a.task) == "done" and shipped(a.fleet) == (won["state"] == "approved")


def test_only_those_who_are_asked_decide(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        before = f.one("SELECT count(*) FROM arrivals")
        assert respond(api, task, yes, by=EVE).status_code == 403
        assert f.one("SELECT count(*) FROM arrivals") == before
        assert respond(api, task, yes, by=BOB).status_code == 202


def test_a_decision_names_the_call_as_it_was_shown(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        bare = {"type": "approval", "approved": True}
        api.token("requester", "approver")
        before = dump(f)
        for body in (bare, {**bare, "call_id": yes["call_id"]}, {**bare, "digest": yes["digest"]}):
            answer = respond(api, task, body)
            assert answer.status_code == 409 and answer.json()["code"] == "call_id_required"
            assert [(o["call_id"], o["digest"]) for o in answer.json()["open"]] == [(yes["call_id"], yes["digest"])]
        assert respond(api, task, {**yes, "digest": "0" * 64}).status_code == 409
        assert respond(api, task, {**yes, "call_id": 99}).status_code == 404
        unfit: tuple[Any, ...] = ({"color": "red"}, {"item": None}, ["apples"], "apples")
        for arguments in unfit:
            assert respond(api, task, {**yes, "edited_args": arguments}).status_code == 400
        assert respond(api, task, {**yes, "approved": False, "edited_args": {"item": "apples"}}).status_code == 400
        for wrong in ({"approved": "yes"}, {"approved": None}, {"call_id": "2"}, {"beer": 1}):
            assert respond(api, task, {**yes, **wrong}).status_code == 400
        assert dump(f) == before


def test_an_edited_approval_is_answered_with_what_became_of_it_and_again_alike(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        edited = {**yes, "edited_args": {"item": "apples"}}
        first = respond(api, task, edited)
        assert (first.status_code, first.json()["decision"]) == (202, "approved_with_edits")
        assert f.drain(task) == "done"
        assert f.one("SELECT text FROM notes") == "apples"
        assert respond(api, task, edited).json() == first.json()
        answer = respond(api, task, {**edited, "edited_args": {"item": "plums"}})
        assert (answer.status_code, answer.json()["decision"]) == (409, "approved_with_edits")


def test_at_low_risk_the_only_question_of_the_run_needs_no_name(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship(risk="low"))) as f, callers(f) as api:
        task, _ = asked(f, api)
        bare = {"type": "approval", "approved": True}
        first = respond(api, task, bare)
        assert first.status_code == 202
        assert f.drain(task) == "done" and shipped(f) == 1
        assert respond(api, task, bare).json() == first.json()
        assert respond(api, task, {**bare, "approved": False}).status_code == 409


def test_at_low_risk_the_second_question_of_a_run_needs_its_name(fresh_database: Any) -> None:
    def twice(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="x")) if task.count(Ship) == 2 else ship(risk="low", why=str(task.count(Ship)))

    with fleet(fresh_database, twice) as f, callers(f) as api:
        task, _ = asked(f, api)
        bare = {"type": "approval", "approved": True}
        assert respond(api, task, bare).status_code == 202
        assert f.drain(task) == "waiting"
        answer = respond(api, task, bare)
        assert answer.status_code == 409 and len(answer.json()["open"]) == 1, "or a repeat would approve the next call"
        assert respond(
            api, task, {**bare, **{k: answer.json()["open"][0][k] for k in ("call_id", "digest")}}
        ).is_success
        assert f.drain(task) == "done" and shipped(f) == 2


def test_a_decision_after_somebody_wrote_is_asked_to_look_again(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, yes = asked(f, api)
        seen = api.get(f"/thread/{task}").json()["seen"]
        f.intake.message(task, source="test", key="m", text="wait!", sender=BOB)
        assert f.drain(task) == "waiting"
        answer = respond(api, task, {**yes, "seen": seen})
        assert answer.status_code == 409 and answer.json()["code"] == "new_information"
        now = api.get(f"/thread/{task}").json()["seen"]
        assert now > seen and respond(api, task, {**yes, "seen": now}).status_code == 202


def test_a_late_decision_is_told_what_became_of_the_question(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        late, yes = asked(f, api)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        expired = respond(api, late, yes)
        assert expired.status_code == 410 and "expired" in expired.json()["detail"]
        cancelled, yes = asked(f, api)
        f.operate.cancel(cancelled, by="ann")
        assert f.drain(cancelled) == "cancelled"
        superseded = respond(api, cancelled, yes)
        assert superseded.status_code == 410 and "superseded" in superseded.json()["detail"]
        assert shipped(f) == 0


def test_an_approval_of_a_thread_that_has_ended_is_gone(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: NothingToDo(reason="x")) as f, callers(f) as api:
        task = f.open("signoff")
        f.drain(task)
        api.token("requester", "approver")
        before = dump(f)
        for body in ({"call_id": 2, "digest": "0"}, {}):
            assert respond(api, task, {"type": "approval", "approved": True, **body}).status_code == 410
        assert dump(f) == before


def test_the_wrong_kind_of_response_is_told_what_the_thread_waits_for(fresh_database: Any) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task, _ = asked(f, api)
        ready = f.open("signoff")
        api.token("requester", "approver")
        before = dump(f)
        words: dict[str, Any] = {"type": "response", "response": "x"}
        yes = {"type": "approval", "approved": True}
        for body in (words, {"type": "beer"}, {}, {"type": ["approval"]}):
            answer = respond(api, task, body)
            assert answer.status_code == 400 and flags(answer) == (False, True), body
        for body in (yes, {"type": "beer"}, {**words, "call_id": 7}):
            answer = respond(api, ready, body)
            assert answer.status_code == 400 and flags(answer) == (False, False), body
        assert respond(api, ready, {**words, "response": ""}).status_code == 400
        assert dump(f) == before


def test_words_open_a_done_thread_again_once_for_each_key(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text=task.event.text))) as f, callers(f) as api:
        task = f.open("notes", "one")
        f.drain(task)
        assert flags(api.get(f"/thread/{task}")) == (True, False)
        words = {"type": "response", "response": "two"}
        answers = together(*[lambda: respond(api, task, words, key="k")] * 10)
        assert {answer.status_code for answer in answers} == {202}
        assert f.row(task)["inbox_pending"] == 1
        assert f.drain(task) == "done" and f.row(task)["outcome"] == {"text": "two"}
        assert f.state(task).run == 2
        assert respond(api, task, words, key="k").status_code == 202 and f.row(task)["status"] == "done"
        assert respond(api, task, {**words, "response": "three"}, key="k").status_code == 409
        assert respond(api, task, words).json()["reopened"], "without a key it is another message"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_thread_that_failed_or_was_cancelled_takes_no_words(fresh_database: Any, status: str) -> None:
    with fleet(fresh_database, once(ship())) as f, callers(f) as api:
        task = f.open("signoff")
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET status = %s WHERE id = %s", (status, task))
        words = {"type": "response", "response": "hello?"}
        first, again = (respond(api, task, words, key="k") for _ in range(2))
        assert first.status_code == again.status_code == 409
        assert first.json() == again.json() and status in first.json()["detail"]
        assert f.run.db.rows("SELECT state, reason FROM arrivals WHERE key LIKE %(key)s", {"key": f"{task} %"}) == [
            {"state": "ignored", "reason": status}
        ]
