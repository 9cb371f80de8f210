"""Public failures of asking people, each by its number: what happened elsewhere must not happen here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette

from tests.agents.curious.tools import Sign
from tests.agents.notes.tools import KeepNote
from tests.agents.signoff.tools import Ship
from tests.asked import asked, at_once
from tests.callers import callers
from tests.curious import ANN, BEN, curious
from tests.hands import change, counted, once, together
from tests.harness import Fleet, fleet
from twelvefold import AskHuman, Done, Task, Text
from twelvefold.directory import Directory
from twelvefold.events import ApprovalMoved, Decided
from twelvefold.ports import ModelReply, ProposedCall
from twelvefold.tool import Tool
from workers.ids import uuid7
from workers.links import Link, from_settings
from workers.operate import Refused
from workers.store import claims


def question(f: Fleet, task: str) -> dict[str, Any]:
    """The newest question of a task."""
    return f.run.db.rows("SELECT * FROM approvals WHERE task_id = %(id)s ORDER BY asked DESC", {"id": task})[0]


def approve(f: Fleet, task: str, *, approved: bool = True, by: str = ANN) -> Any:
    """Decide about the newest question: the decision, or the code of the refusal."""
    asks = question(f, task)
    try:
        return f.operate.decide(task, asks["call"], approved=approved, by=by, digest=asks["digest"])
    except Refused as refused:
        return refused.code


def notes(f: Fleet) -> list[str]:
    """What was written."""
    return [row["text"] for row in f.run.db.rows("SELECT text FROM notes ORDER BY id")]


def visit_then_shout(task: Task) -> Tool[Any]:
    """An effect that nobody has to approve, then one that somebody has."""
    done = task.count(KeepNote)
    return Done(outcome=Text(text="over")) if done == 2 else KeepNote(text="VISIT LOUD" if done else "visit")


def test_b89_what_was_done_before_a_pause_is_not_done_again(fresh_database: Any) -> None:
    with fleet(fresh_database, visit_then_shout) as f:
        model = counted(f)
        task = f.open("notes")
        assert f.drain(task) == "waiting" and notes(f) == ["visit"]
        approve(f, task)
        assert f.drain(task) == "done" and notes(f) == ["visit", "VISIT LOUD"] and model.asked == 3


def test_b90_what_runs_is_what_was_approved_and_the_model_is_not_asked_before(fresh_database: Any) -> None:
    said: list[str] = []

    def script(task: Task) -> Tool[Any]:
        said.append(f"v{len(said) + 1}")
        return Done(outcome=Text(text="over")) if task.did(Sign) else Sign(item=said[-1])

    with curious(fresh_database, script) as f:
        task = f.open("curious")
        f.drain(task)
        approve(f, task)
        f.step(task)
        assert notes(f) == ["v1"] and said == ["v1"]


def test_b92_a_reply_that_mixes_what_is_free_with_what_is_asked_runs_none_of_it(fresh_database: Any) -> None:
    both = (ProposedCall("count_notes", '{"topic":"milk"}'), ProposedCall("keep_note", '{"text":"LOUD"}'))
    replies = [ModelReply(calls=both), ModelReply(calls=both[:1]), ModelReply(calls=both[1:])]
    done = ModelReply(calls=(ProposedCall("done", '{"outcome":{"text":"over"}}'),))
    with fleet(fresh_database, once(KeepNote(text="x"))) as f:
        counted(f, lambda request: replies.pop(0) if replies else done)
        task = f.open("notes")
        f.step(task)
        assert f.kinds(task)[-1] == "Rejected" and notes(f) == []
        assert f.drain(task) == "waiting"
        held = claims.claim(f.run.db, task, uuid7(), f.run.registry.known, 60.0)
        assert held is None, "a task that waits for a person is nobody's to crash with"
        approve(f, task)
        assert f.drain(task) == "done" and notes(f) == ["LOUD"]
        assert [e.tool for e in f.events(task) if isinstance(e, Decided)] == ["count_notes", "keep_note", "done"]


def test_b93_of_twenty_approvals_and_twenty_rejections_one_decides_and_all_are_answered(fresh_database: Any) -> None:
    with curious(fresh_database, once(Sign(item="pears"))) as f:
        task = f.open("curious")
        f.drain(task)
        clicks = [lambda yes=yes: approve(f, task, approved=yes) for yes in (True, False) * 20]
        answers = together(*clicks)
        won = question(f, task)["state"]
        same = [answer for answer in answers if not isinstance(answer, int)]
        assert {answer.state for answer in same} == {won} and len(same) == 20
        assert [answer for answer in answers if isinstance(answer, int)] == [409] * 20
        f.drain(task)
        assert [e.to for e in f.events(task) if isinstance(e, ApprovalMoved)] == [won]
        assert notes(f) == (["pears"] if won == "approved" else [])


def test_b94_an_approval_of_what_has_moved_on_runs_nothing(fresh_database: Any) -> None:
    with asked(fresh_database, Ship(item="100 pears", risk="low")) as a:
        form = a.form()
        a.fleet.intake.message(a.task, source="mail", key="m", text="make it 1000", sender=ANN, proof="test")
        late = a.all([("POST", a.path(), form)])[0]
        assert late.status_code == 409 and a.fleet.drain(a.task) == "waiting"
        assert a.all([("POST", a.path(), form)])[0].status_code == 409 and "1000" in a.get().text
        form = a.form()
        with a.fleet.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET deadline = clock_timestamp()")
        assert (
            a.all([("POST", a.path(), form)])[0].status_code == 410 and a.fleet.one("SELECT count(*) FROM notes") == 0
        )


def test_b96_what_one_worker_knew_is_in_rows_and_another_goes_on_with_newer_code(fresh_database: Any) -> None:
    with curious(fresh_database, once(Sign(item="pears"))) as first:
        task = first.open("curious")
        first.drain(task)
        approve(first, task)
        dead = claims.claim(first.run.db, task, uuid7(), first.run.registry.known, 60.0)
        assert dead is not None
        with curious(fresh_database, once(Sign(item="pears"))) as second:
            change(second, "curious", version=2)
            assert second.step(task) == "nothing", "the dead worker's claim"
            claims.release(second.run.db, dead, soon=True, died=True)
            assert second.drain(task) == "done" and notes(second) == ["pears"]
            assert [e.to for e in second.events(task) if isinstance(e, ApprovalMoved)] == ["approved"]


def test_b97_a_tool_that_was_changed_since_is_asked_about_anew(fresh_database: Any) -> None:
    class Autograph(Sign, was=("sign",)):
        """Sign for an item, without saying for how many. Use when it is ready."""

        @classmethod
        def upgrade(cls, old: dict[str, Any]) -> dict[str, Any]:
            """As it is called now."""
            return {**old, "item": f"one {old['item'].removeprefix('one ')}"}

    def script(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="over")) if task.state.tally("sign").count else Sign(item="pear")

    with curious(fresh_database, script) as f:
        task = f.open("curious")
        f.drain(task)
        approve(f, task)
        before = question(f, task)
        change(f, "curious", tools=[Autograph, AskHuman])
        assert f.drain(task) == "waiting" and notes(f) == []
        assert question(f, task)["digest"] != before["digest"]
        approve(f, task)
        f.step(task)
        assert notes(f) == ["one pear"]


def test_b98_nothing_that_runs_is_hidden_from_who_approves_it(fresh_database: Any) -> None:
    body = "x" * 5_900 + " pay to DE99\u202e " + "y" * 80
    with asked(fresh_database, Ship(item=body, risk="low")) as a:
        shown = a.get().text.replace("\n", "")
        assert "DE99" in shown and "\u202e" not in shown
    with asked(fresh_database, Ship(item="z" * 9_000 + "DE99", risk="low")) as a:
        assert "had to be cut" in a.text() and "/a/" not in a.text(), (
            "test_approval_page.py has the page of such a call"
        )
        assert a.fleet.one("SELECT state FROM approvals WHERE task_id = %(id)s", id=a.task) == "pending"


def test_b100_the_link_of_somebody_who_is_asked_no_more_decides_nothing(fresh_database: Any) -> None:
    with curious(fresh_database, once(Sign(item="pears", target="ann"))) as f, callers(f) as c:
        task = f.open("curious")
        f.drain(task)
        old = question(f, task)
        approve(f, task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET valid_until = clock_timestamp()")
        moved = f.run.settings.model_copy(update={"directory": Directory(names={"ann": (BEN,)})})
        f.run = replace(f.run, settings=moved)
        assert f.drain(task) == "waiting" and question(f, task)["target"] == BEN
        links = from_settings(f.settings)
        assert links is not None
        from console import approve as page

        app = Starlette(routes=page.routes(f.run.db, links, lambda *_: None, f.run.log))
        for asks in (old, question(f, task)):
            link = Link(tenant="t1", task=task, call=asks["call"], asked=asks["asked"], approver=ANN, expires=2**31)
            form = {"decision": "approve", "digest": asks["digest"], "seen": "9"}
            path = links.address(link).removeprefix(links.url)
            assert at_once(app, [("POST", path, form)])[0].status_code in (404, 409, 410)
        said = {"type": "approval", "approved": True, "call_id": old["call"], "digest": question(f, task)["digest"]}
        assert c.post(f"/thread/{task}/response", said, by=ANN).status_code == 403
        assert question(f, task)["state"] == "pending" and notes(f) == []


@pytest.mark.parametrize("who", ["eve@evil.example", "ann@example.org.evil.example", ""])
def test_b101_whoever_is_not_asked_is_refused_and_the_question_stays_open(fresh_database: Any, who: str) -> None:
    with curious(fresh_database, once(Sign(item="pears"))) as f:
        task = f.open("curious")
        f.drain(task)
        assert [approve(f, task, approved=yes, by=who) for yes in (True, False)] == [403, 403]
        assert question(f, task)["state"] == "pending" and f.one("SELECT count(*) FROM votes") == 0


def test_b102_a_second_click_while_the_first_is_worked_on_is_told_so(fresh_database: Any) -> None:
    with asked(fresh_database, Ship(item="pears", risk="low")) as a:
        form = a.form()
        first, second = (a.all([("POST", a.path(), form)])[0] for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 200)
        assert "approved by" in second.text and "<form" not in first.text + second.text
        assert a.all([("POST", a.path(), form | {"decision": "reject"})])[0].status_code == 409
        assert a.fleet.drain(a.task) == "done" and notes(a.fleet) == ["pears"]
        assert "approved by" in a.get().text and "<form" not in a.get().text
