"""Need more information: a question back to the agent; the call stays open, once for longer, and no more happens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.asked import SECRET, URL, Asked, Mailbox
from tests.deciding import ANN, BEN, Send, Waits, waits
from tests.hands import together
from twelvefold import Done, Task, Text, Verdict, ask
from twelvefold.controls import Explain
from twelvefold.events import Decided, Rejected
from twelvefold.tool import Tool
from workers.operate import Refused

WHY = "Why five of them?"
BECAUSE = "The customer ordered five."


def asks(call: Send, task: Task) -> Verdict:
    return ask(f"{ANN}, {BEN}", "it is due")


def explains(task: Task) -> Tool[Any]:
    """A model that sends, explains what it is asked, and is done."""
    if Explain.offered(task):
        return Explain(text=BECAUSE)
    known = task.state.tally("send")
    return Done(outcome=Text(text="over")) if known.count or known.denied or known.failed else Send()


def stubborn(task: Task) -> Tool[Any]:
    """A model that wants to send, whatever it is asked."""
    known = task.state.tally("send")
    return Done(outcome=Text(text="over")) if known.count or known.denied else Send()


def back(w: Waits, by: str = ANN, question: str = WHY) -> Any:
    return w.fleet.operate.ask_back(w.task, w.row["call"], question, by=by)


def test_the_agent_explains_the_call_which_stays_open_and_longer(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        before, due = w.row, w.fleet.row(w.task)["due_at"]
        assert back(w).state == "more_info" and w.row["state"] == "more_info"
        assert w.fleet.drain(w.task) == "waiting"
        row, state = w.row, w.fleet.state(w.task)
        assert (row["state"], row["asked"], row["digest"]) == ("pending", before["asked"], before["digest"])
        assert row["deadline"] - before["deadline"] == timedelta(hours=24)
        assert state.call is not None and state.call.due == row["deadline"] and due is not None
        assert [(moved.to, moved.comment) for moved in w.moves()] == [("more_info", WHY), ("explained", BECAUSE)]
        assert w.says(BEN).state == "approved"
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_everybody_who_is_asked_gets_the_explanation_on_a_card_of_the_same_call(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains, public_url=URL, link_secrets=(SECRET,)) as w:
        page = Asked(w.fleet, w.task, Mailbox())
        page.deliver()
        assert page.post(ANN, decision="ask", comment=WHY).status_code == 200
        assert WHY in page.get(page.path(BEN)).text
        w.fleet.drain(w.task)
        page.deliver()
        subjects = [letter.subject.partition(":")[0] for letter in page.box.letters]
        assert subjects == ["signoff", "signoff", "Explained", "Explained"]
        shown = page.get(page.path(BEN)).text
        assert BECAUSE in shown and "value='ask'" not in shown, "it is asked back once"
        assert page.post(BEN).status_code == 200
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_it_is_asked_back_once_and_the_same_again_is_answered_alike(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        first = back(w)
        assert back(w) == first
        for by, question in ((BEN, WHY), (ANN, "And why today?")):
            with pytest.raises(Refused, match="has asked back already") as refused:
                back(w, by, question)
            assert refused.value.code == 409
        w.fleet.drain(w.task)
        assert back(w) == first and w.fleet.step(w.task) == "nothing"


def test_who_is_not_asked_cannot_ask_back_and_an_empty_question_is_none(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        for by, question, code in (("eve@shop.example", WHY, 403), (ANN, "  ", 400)):
            with pytest.raises(Refused) as refused:
                back(w, by, question)
            assert refused.value.code == code
        assert w.row["state"] == "pending" and w.row["more_info_at"] is None


def test_a_decision_while_the_agent_thinks_wins_and_the_model_is_not_asked(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        back(w)
        assert w.says(BEN).state == "approved"
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]
        assert [moved.to for moved in w.moves()] == ["more_info", "approved"]


def test_a_question_back_and_decisions_at_one_moment_come_to_one_decision(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        together(lambda: back(w), lambda: w.says(ANN), lambda: w.says(BEN, approved=False), lambda: back(w, BEN))
        assert w.row["state"] in ("approved", "rejected")
        assert w.fleet.drain(w.task) == "done" and len(w.sent) <= 1


def test_a_model_that_is_asked_about_its_call_can_do_nothing_but_explain_it(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=stubborn) as w:
        back(w)
        assert w.fleet.drain(w.task) == "waiting"
        assert w.row["state"] == "pending"
        events = w.fleet.events(w.task)
        assert [event.kind for event in events if isinstance(event, Rejected)] == ["not_now", "not_now"]
        assert [event.tool for event in events if isinstance(event, Decided)] == ["send"]
        assert w.moves()[-1].comment == "The agent has nothing to add."
        w.says(ANN)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_the_longer_deadline_is_one_too(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        back(w)
        w.fleet.drain(w.task)
        w.over("due")
        assert w.fleet.drain(w.task) == "done" and w.row["state"] == "expired" and w.sent == []


def test_a_cancel_ends_a_call_that_is_asked_about(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=explains) as w:
        back(w)
        w.fleet.operate.cancel(w.task, by="root")
        assert w.fleet.drain(w.task) == "cancelled" and w.row["state"] == "superseded"
