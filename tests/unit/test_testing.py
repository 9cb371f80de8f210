"""The author's test kit: plays need nothing but the agent, and a move that does not fit says what the task wants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agents.refunds.tools import PayAgain as Foreign
from tests.property.plays import PLAYER, Keep, Look, Pay, PayAndLook
from twelvefold import Done, ToolError
from twelvefold.events import Arrived, CancelAsked, Failed, Rejected
from twelvefold.testing import (
    approves,
    did_not_happen,
    doubt,
    gives,
    happened,
    later,
    play,
    raises,
    rejects,
    replay,
    says,
)

HELLO = {"text": "hello"}
LOOK, KEEP, ASKED = Look(topic="x"), Keep(text="x"), Keep(rule="ask", text="x")
PAID = {"amount": "1"}

WRONG: list[tuple[list[Any], str]] = [
    ([KEEP, LOOK], r"The model is not asked now; the task wants RunWrite\(\)"),
    ([gives(ASKED, PAID)], "The call may not run now: it is asked, the verdict was ask"),
    ([KEEP, gives(Keep(text="other"), PAID)], 'Another call is open: keep {"rule":"auto","text":"x"}'),
    ([gives(Keep(rule="deny", text="x"), PAID)], "No call is open; the task wants AskModel"),
    ([approves()], "Nothing waits for a person; it wants AskModel"),
    ([LOOK, rejects()], "Nothing waits for a person"),
    ([happened(PAID)], "Nothing is in doubt; the task wants AskModel"),
    ([KEEP, did_not_happen()], "Nothing is in doubt"),
]


@pytest.mark.parametrize(("moves", "words"), WRONG)
def test_a_move_that_does_not_fit_says_what_the_task_wants(moves: list[Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        play(PLAYER, HELLO, *moves)


def test_a_call_that_is_not_on_the_menu_is_named() -> None:
    class Stranger(Foreign):
        """Pay. Use once."""

    with pytest.raises(AssertionError, match="stranger is not on the menu: look, keep"):
        play(PLAYER, HELLO, Stranger(port=1, order_id="1", amount=1))  # type: ignore[arg-type]


def test_an_event_the_agent_does_not_accept_is_refused() -> None:
    with pytest.raises(ValueError, match="text"):
        play(PLAYER, {"subject": "no text"})


def test_a_result_the_tool_does_not_promise_is_refused() -> None:
    with pytest.raises(ValueError, match="amount"):
        play(PLAYER, HELLO, gives(KEEP, {"sum": 1}))


def test_a_whole_story_in_a_few_moves() -> None:
    task = play(
        PLAYER, HELLO,
        gives(LOOK, ["an order"]),
        raises(KEEP, ToolError("locked", affected=("text",))),
        Pay(rule="ask", text="12"), later(hours=1), approves(by="ann@example.org"),
        gives(Pay(rule="ask", text="12"), PAID),
        doubt(PayAndLook(text="7")), later(minutes=1), happened(PAID),
        says("that is all"),
        Done(outcome={"text": "paid twice"}),
    )  # fmt: skip
    assert (task.status, task.outcome.text) == ("done", "paid twice")
    assert (task.count(Look), task.count(Pay), task.count(PayAndLook), task.did(Keep)) == (1, 1, 1, False)
    assert task.waiting is None
    assert replay(task.log) == task.state


def test_prose_is_the_model_s_where_it_is_asked_else_a_person_s() -> None:
    assert isinstance(play(PLAYER, HELLO, says("hm")).log[-1].event, Rejected)
    arrived = play(PLAYER, HELLO, ASKED, says("hm")).log[-1].event
    assert isinstance(arrived, Arrived) and arrived.payload == {
        "text": "hm",
        "subject": "",
        "sender": "somebody@example.org",
    }


def test_an_event_stands_for_itself() -> None:
    assert play(PLAYER, HELLO, CancelAsked(by="ann")).status == "cancelled"
    failed = Failed(type="auth", message="bad key", then="operator")
    assert play(PLAYER, HELLO, failed).state.waiting_for == "operator"


def test_a_play_can_be_looked_at_and_not_changed() -> None:
    task = play(PLAYER, HELLO, ASKED)
    assert task.waiting == ASKED and task.log[0].seq == 1 and task.agent is PLAYER
    with pytest.raises(AttributeError):
        task.state = task.state  # type: ignore[misc]
