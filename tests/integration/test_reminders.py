"""What the clock does to a question: a reminder, one escalation, and what its rule says when nobody decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from console import answer
from tests.asked import LINK, SECRET, URL, Mailbox, send
from tests.callers import callers
from tests.curious import ask_by, curious
from tests.deciding import ANN, BEN, CLEO, DAN, Send, Waits, waits
from tests.hands import change
from twelvefold import Task, Verdict, ask
from twelvefold.directory import Directory
from workers.card import Card
from workers.links import from_settings
from workers.operate import Refused


def asks(call: Send, task: Task) -> Verdict:
    return ask(f"{ANN}, {BEN}", "it is due", escalate_to=CLEO)


def mailed(w: Waits, box: Mailbox) -> list[tuple[str, str]]:
    """Recipient and subject of every letter since the last look."""
    before = len(box.letters)
    send(w.fleet, box)
    return [(letter.recipient, letter.subject.partition(":")[0]) for letter in box.letters[before:]]


def cards(w: Waits) -> list[Card]:
    rows = w.fleet.run.db.rows("SELECT payload -> 'card' AS card FROM outbox ORDER BY n")
    return [Card.model_validate(row["card"]) for row in rows]


def test_a_reminder_then_one_escalation_then_expiry_each_of_the_same_call(fresh_database: Any) -> None:
    with waits(fresh_database, asks, public_url=URL, link_secrets=(SECRET,)) as w:
        box, call = Mailbox(), w.row["call"]
        assert mailed(w, box) == [(ANN, "signoff"), (BEN, "signoff")]
        w.over("remind_at")
        assert w.fleet.drain(w.task) == "waiting" and w.row["state"] == "reminded"
        assert mailed(w, box) == [(ANN, "Reminder"), (BEN, "Reminder")]
        with pytest.raises(Refused):
            w.says(CLEO)
        w.over("escalate_at")
        assert w.fleet.drain(w.task) == "waiting" and w.row["state"] == "escalated"
        assert mailed(w, box) == [(CLEO, "Nobody has decided yet")]
        assert {(card.call, card.asked, card.digest) for card in cards(w)} == {(call, w.row["asked"], w.row["digest"])}
        w.over("due")
        assert w.fleet.drain(w.task) == "done" and w.row["state"] == "expired"
        assert mailed(w, box) == [(who, "Re") for who in (ANN, BEN, CLEO)] and w.sent == []
        assert all("nobody decided in time" in letter.text for letter in box.letters[-3:])
        assert [moved.to for moved in w.moves()] == ["reminded", "escalated", "expired"]


def test_after_an_escalation_those_who_were_asked_first_and_those_who_are_asked_now_may_decide(
    fresh_database: Any,
) -> None:
    for name, by in (("first", ANN), ("then", CLEO)):
        with waits(fresh_database, asks) as w:
            w.over("escalate_at")
            w.fleet.drain(w.task)
            assert w.says(by).state == "approved", name
            assert w.fleet.drain(w.task) == "done"


def test_the_page_of_a_reminder_and_of_an_escalation_decides(fresh_database: Any) -> None:
    with waits(fresh_database, asks, public_url=URL, link_secrets=(SECRET,)) as w:
        from tests.asked import Asked

        page = Asked(w.fleet, w.task, Mailbox())
        w.over("escalate_at")
        w.fleet.drain(w.task)
        page.deliver()
        assert "cleo@shop.example" in page.get(page.path(CLEO)).text
        assert page.post(CLEO).status_code == 200
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_a_decision_that_comes_before_its_reminder_is_folded_and_nobody_is_reminded(fresh_database: Any) -> None:
    with waits(fresh_database, asks) as w:
        w.over("remind_at")
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]
        assert [moved.to for moved in w.moves()] == ["approved"]


@pytest.mark.parametrize("name", ["remind_at", "escalate_at"])
def test_a_reminder_that_a_decision_overtakes_is_not_written(fresh_database: Any, name: str) -> None:
    with waits(fresh_database, asks) as w:
        w.over(name)
        letters = w.fleet.one("SELECT count(*) FROM outbox")
        with w.fleet.run.db.connection() as connection:  # decided after this step has read its inbox
            connection.execute("UPDATE approvals SET state = 'approved'")
        assert w.fleet.step(w.task) == "nothing"
        assert w.row["state"] == "approved" and w.fleet.one("SELECT count(*) FROM outbox") == letters


@pytest.mark.parametrize(
    ("rule", "times"),
    [
        ({}, {"remind_at": 4, "due": 24}),
        ({"escalate_to": CLEO}, {"remind_at": 4, "escalate_at": 8, "due": 24}),
        ({"remind": None}, {"due": 24}),
        ({"deadline": timedelta(hours=3)}, {"due": 3}),
        ({"deadline": timedelta(hours=48), "remind": timedelta(hours=30)}, {"remind_at": 30, "due": 48}),
    ],
)
def test_the_times_of_a_question_are_those_of_its_rule(fresh_database: Any, rule: Any, times: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(ANN, **rule)) as w:
        state = w.fleet.state(w.task)
        assert state.call is not None and state.at is not None
        found = {name: getattr(state.call, name) for name in ("remind_at", "escalate_at", "due")}
        assert {name: (at - state.at) / timedelta(hours=1) for name, at in found.items() if at} == times
        assert w.fleet.row(w.task)["due_at"] == min(at for at in found.values() if at)


def test_a_question_that_parks_waits_for_an_operator_and_is_asked_anew_by_retry(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(ANN, at_expiry="park")) as w:
        first = w.row
        w.over("due")
        assert w.fleet.drain(w.task) == "waiting"
        assert (w.row["state"], w.fleet.row(w.task)["waiting_for"]) == ("expired", "operator")
        w.fleet.operate.retry(w.task, by="root")
        assert w.fleet.drain(w.task) == "waiting"
        assert (w.row["state"], w.row["call"]) == ("pending", first["call"]) and w.row["asked"] > first["asked"]
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_nothing_but_a_read_runs_because_nobody_decided(fresh_database: Any) -> None:
    with pytest.raises(AssertionError), waits(fresh_database, lambda call, task: ask(ANN, at_expiry="allow")):
        raise RuntimeError("a Write that would be allowed at expiry is denied, and does not wait")


def test_a_question_is_reminded_of_and_passed_on_like_an_approval(fresh_database: Any) -> None:
    with curious(fresh_database) as f:
        change(f, "curious", questions=ask(remind=timedelta(hours=1), escalate_to="nobody"))
        box = Mailbox()
        w = Waits(f, ask_by(f, box))
        with callers(f) as api:
            said = {"type": "response", "response": "Refund", "call_id": w.row["call"]}
            w.over("remind_at")
            assert f.drain(w.task) == "waiting" and w.row["state"] == "reminded"
            assert mailed(w, box) == [("ann@example.org", "Reminder"), ("ben@example.org", "Reminder")]
            assert api.post(f"/thread/{w.task}/response", said, by="no@example.org").status_code == 403
            w.over("escalate_at")
            assert f.drain(w.task) == "waiting" and w.row["state"] == "escalated"
            assert mailed(w, box) == [("no@example.org", "Nobody has answered yet")]
            waiting = api.get(f"/thread/{w.task}").json()["waiting"]
            assert waiting["responders"] == ["ann@example.org", "ben@example.org", "no@example.org"]
            page = TestClient(Starlette(routes=answer.routes(f.run.db, from_settings(f.settings), print, f.run.log)))
            path = f"/a/q/{LINK.findall(box.letters[-1].text)[0].removeprefix('q/')}"
            assert "no@example.org" in page.get(path).text
            assert page.post(path, data={"answer": "Neither"}).status_code == 400
            assert page.post(path, data={"answer": "Replace"}).status_code == 200
        assert f.drain(w.task) == "done" and [moved.to for moved in w.moves()] == ["reminded", "escalated", "answered"]


def test_groups_and_stand_ins_are_names_of_the_directory_too(fresh_database: Any) -> None:
    names = Directory(names={"legal": (ANN, BEN), "boss": (CLEO,), "ops": (DAN,)})
    rule = ask(all_of=("legal", "ops"), escalate_to="boss")
    for voters, comes in (((BEN, DAN), ["voted", "approved"]), ((ANN, BEN, DAN), ["voted", "voted", "approved"])):
        with waits(fresh_database, lambda call, task: rule, directory=names) as w:
            assert w.row["target"] == f"{ANN}, {BEN}, {DAN}"
            assert [w.says(by).state for by in voters] == comes
            assert w.fleet.drain(w.task) == "done", "the rule in names is the rule that was asked"
            assert w.fleet.one("SELECT count(*) FROM votes WHERE task_id = %(id)s", id=w.task) == len(voters)
    with waits(fresh_database, lambda call, task: rule, directory=names) as w:
        w.over("escalate_at")
        w.fleet.drain(w.task)
        assert [w.says(by).state for by in (CLEO, DAN)] == ["voted", "approved"], "who stands in is one of each group"
        assert w.fleet.drain(w.task) == "done"
