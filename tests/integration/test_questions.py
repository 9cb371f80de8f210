"""A question to a person: asked, answered once, by whoever is asked, and by nobody else; the right call or none."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.asked import Mailbox, send
from tests.callers import callers
from tests.curious import ANN, BEN, SURE, WHICH, WHY, ask_by, curious
from tests.hands import counted, due, together
from tests.harness import Fleet
from twelvefold import AskHuman, Done, Task, Text
from twelvefold.events import ApprovalMoved
from twelvefold.tool import Tool
from workers.answers import Answered, Reply, answer
from workers.operate import Refused


def says(f: Fleet, task: str, text: str, by: str = ANN, **more: Any) -> Any:
    """Answer as somebody with a token: the answer, or what it was refused with."""
    try:
        return answer(f.run.db, Reply(task, text, by, "session", **more))
    except Refused as refused:
        return (refused.code, refused.kind)


def row(f: Fleet, task: str) -> dict[str, Any]:
    """The newest question of a task."""
    return f.run.db.rows("SELECT * FROM approvals WHERE task_id = %(id)s ORDER BY asked DESC", {"id": task})[0]


def moved(f: Fleet, task: str) -> list[str]:
    """What became of the questions, in the log."""
    return [event.to for event in f.events(task) if isinstance(event, ApprovalMoved)]


def test_a_question_waits_for_an_answer_and_the_model_goes_on_with_it(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHICH) as f:
        model = counted(f)
        task = ask_by(f, box)
        assert (f.row(task)["waiting_for"], row(f, task)["kind"], model.asked) == ("answer", "question", 1)
        assert sorted(letter.recipient for letter in box.letters) == [ANN, BEN]
        assert isinstance(says(f, task, "refund", BEN), Answered)
        assert row(f, task)["answer"] == "Refund" and f.drain(task) == "done"
        assert [e.result for e in f.events(task) if isinstance(e, ApprovalMoved)] == ["Refund"]
        assert model.asked == 2 and row(f, task)["decided_by"] == BEN


def test_code_of_the_agent_reads_the_answer(fresh_database: Any) -> None:
    seen: list[Any] = []

    def script(task: Task) -> Tool[Any]:
        seen.append((task.answered, task.last(AskHuman)))
        return Done(outcome=Text(text="over")) if task.answered else WHY

    with curious(fresh_database, script) as f:
        task = ask_by(f)
        says(f, task, "x" * 3000)
        assert f.drain(task) == "done"
    assert seen == [(False, None), (True, "x" * 3000)]


@pytest.mark.parametrize(
    ("question", "wrong", "right", "kept"),
    [
        (WHICH, ["perhaps", "Refund, please", ""], " rePLACE ", "Replace"),
        (SURE, ["maybe", "y"], "YES", "yes"),
        (WHY, ["   ", "x" * 4001], "it broke\nin two", "it broke\nin two"),
    ],
)
def test_an_answer_that_does_not_fit_goes_back_to_whoever_gave_it_and_the_task_still_waits(
    fresh_database: Any, question: AskHuman, wrong: list[str], right: str, kept: str
) -> None:
    box = Mailbox()
    with curious(fresh_database, question) as f:
        task = ask_by(f, box)
        before = len(box.letters)
        for text in wrong:
            assert says(f, task, text) == (400, "unfit")
            assert says(f, task, text) == (400, "unfit")
        send(f, box)
        back = box.letters[before:]
        assert [letter.recipient for letter in back] == [ANN] * len(wrong), "one letter each, however often it is sent"
        assert all("still open" in letter.text and letter.subject.startswith("Re: ") for letter in back)
        assert f.step(task) == "nothing" and row(f, task)["state"] == "pending"
        assert says(f, task, right).text == kept


def test_only_who_is_asked_may_answer_and_their_words_alone_are_no_answer(fresh_database: Any) -> None:
    with curious(fresh_database, SURE) as f:
        task = ask_by(f)
        assert says(f, task, "yes", BEN) == (403, "") and says(f, task, "yes", "eve@evil.example") == (403, "")
        assert says(f, task, "yes", ANN, tenant="t2") == (404, "")
        assert answer(f.run.db, Reply(task, "yes", "cli:root", "override")).by == "cli:root"


def test_the_first_answer_wins_and_the_same_again_gets_the_same(fresh_database: Any) -> None:
    with curious(fresh_database, WHICH) as f:
        task = ask_by(f)
        said = [("Refund", ANN), ("Replace", BEN)] * 6
        results = together(*(lambda text=text, by=by: says(f, task, text, by) for text, by in said))
        first = row(f, task)["answer"]
        assert [isinstance(r, Answered) for r in results] == [text == first for text, _ in said]
        assert {r for r in results if isinstance(r, tuple)} == {(409, "")}
        assert f.drain(task) == "done" and moved(f, task) == ["answered"]


def test_two_tasks_that_ask_one_person_and_are_answered_in_reverse_get_their_own_answers(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHY) as f:
        tasks = [ask_by(f, box) for _ in range(2)]
        for task in reversed(tasks):
            says(f, task, f"for {task}", call=row(f, task)["call"])
        for task in tasks:
            assert f.drain(task) == "done" and row(f, task)["answer"] == f"for {task}"


def successor(task: Task) -> Tool[Any]:
    """Ask until somebody answers, each time in other words."""
    asked = task.state.tally("ask_human").denied
    return Done(outcome=Text(text="over")) if task.answered else WHY.model_copy(update={"reason": f"Why? ({asked})"})


def test_a_late_answer_to_an_expired_question_reaches_no_call_while_its_successor_is_open(fresh_database: Any) -> None:
    with curious(fresh_database, successor) as f:
        task = ask_by(f)
        first = row(f, task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        assert says(f, task, "late", call=first["call"]) == (410, ""), "before the sweep has seen that it is over"
        due(f, task)
        assert f.drain(task) == "waiting"
        second = row(f, task)
        assert second["call"] != first["call"] and moved(f, task) == ["expired"]
        assert says(f, task, "late", call=first["call"]) == (410, "")
        assert says(f, task, "late") == (409, "call_id_required"), "nobody can tell which was meant"
        assert row(f, task)["state"] == "pending"
        assert says(f, task, "in time", call=second["call"]).call == second["call"]
        assert f.drain(task) == "done"


def test_an_expired_question_is_told_as_expired_and_is_no_refusal(fresh_database: Any) -> None:
    with curious(fresh_database, successor) as f:
        task = ask_by(f)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        due(f, task)
        f.drain(task)
        model = counted(f)
        says(f, task, "in time", call=row(f, task)["call"])
        f.drain(task)
        prompt = model.prompts[0]
        assert 'state="expired"' in prompt and "rejected" not in prompt and ">in time</answer>" in prompt


def test_an_answer_is_no_approval_and_an_approval_no_answer(fresh_database: Any) -> None:
    with curious(fresh_database, WHY) as f, callers(f) as c:
        task = ask_by(f)
        asked = row(f, task)
        with pytest.raises(Refused) as refused:
            f.operate.decide(task, asked["call"], approved=True, by=ANN, proof="override")
        assert refused.value.code == 404
        wish = {"type": "approval", "approved": True, "call_id": asked["call"], "digest": asked["digest"]}
        found = c.post(f"/thread/{task}/response", wish, by=ANN)
        assert found.status_code == 400 and found.json()["awaitingHumanResponse"] is True
        assert row(f, task)["state"] == "pending"
        other = f.open("signoff")
        f.run.model.scripts["signoff"] = lambda task: _ship()  # type: ignore[attr-defined]
        assert f.drain(other) == "waiting"
        assert says(f, other, "yes", "ann@example.com") == (404, "")


def _ship() -> Tool[Any]:
    from tests.agents.signoff.tools import Ship

    return Ship(item="pears")


@pytest.mark.parametrize("state", ["approved", "rejected", "stale"])
def test_the_database_itself_keeps_answers_and_approvals_apart(fresh_database: Any, state: str) -> None:
    with curious(fresh_database, WHY) as f:
        task = ask_by(f)
        crossed = "kind = 'approval', state = 'answered', answer = 'x'"
        for change in (f"state = '{state}'", "state = 'answered'", crossed):
            with pytest.raises(psycopg.errors.CheckViolation), f.run.db.connection() as connection:
                connection.execute(f"UPDATE approvals SET {change} WHERE task_id = %s", (task,))


def test_words_over_http_answer_where_they_come_from_somebody_who_is_asked(fresh_database: Any) -> None:
    with curious(fresh_database, WHICH) as f, callers(f) as c:
        task = ask_by(f)
        path = f"/thread/{task}/response"
        shown = c.get(f"/thread/{task}").json()
        assert shown["waiting"]["kind"] == "answer" and shown["waiting"]["responders"] == [ANN, BEN]
        assert (shown["awaitingHumanResponse"], shown["awaitingHumanApproval"]) == (True, False)
        assert c.get("/approvals").json()["approvals"][0]["kind"] == "answer"
        news = c.post(path, {"type": "response", "response": "Refund"}, by="eve@example.org")
        assert news.status_code == 202 and "call_id" not in news.json(), "words of others are news"
        call = shown["waiting"]["call_id"]
        other = c.post(path, {"type": "response", "response": "Refund", "call_id": call}, by="eve@example.org")
        assert other.status_code == 403 and f.drain(task) == "waiting"
        unfit = c.post(path, {"type": "response", "response": "perhaps"}, by=ANN)
        assert unfit.status_code == 400 and unfit.json()["code"] == "unfit" and "Replace" in unfit.json()["detail"]
        said = [c.post(path, {"type": "response", "response": "refund"}, by=ANN) for _ in range(2)]
        assert [x.status_code for x in said] == [202, 202] and said[0].json()["call_id"] == call
        assert c.post(path, {"type": "response", "response": "replace", "call_id": call}, by=BEN).status_code == 409
        assert f.drain(task) == "done"
        kinds = [e["type"] for e in c.get(f"/thread/{task}").json()["events"]]
        assert kinds.count("ApprovalMoved") == 1


def test_a_question_to_a_channel_is_told_in_the_log_and_open_to_whoever_the_edge_lets_in(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHY.model_copy(update={"target": "#desk"})) as f:
        task = ask_by(f, box)
        assert box.letters == [] and len(box.lines) == 1 and "sent back" not in box.lines[0]
        assert row(f, task)["target"] == "#desk" and says(f, task, "it broke", "anybody").text == "it broke"
