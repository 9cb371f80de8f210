"""What stops a run in three layers: success by code, failure by counts, and the hard end of a budget."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.property.plays import Keep, Look, player
from twelvefold import Budget, Done, Task, Text, ToolError, ask
from twelvefold.effects import AskModel
from twelvefold.events import (
    Decided,
    DoneRefused,
    Failed,
    Finished,
    LimitReached,
    ModelAsked,
    Returned,
    Spent,
    Stuck,
)
from twelvefold.provenance import facts_of
from twelvefold.questions import AskHuman
from twelvefold.shape import shape
from twelvefold.state import OpenCall
from twelvefold.testing import Played, gives, play, raises
from twelvefold.tool import Tool

HELLO = {"text": "hello"}
SEARCH = Look(topic="x")


def last(task: Played) -> Any:
    return task.log[-1].event


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        ([gives(SEARCH, ["same"])] * 3, 'the same call 3 times: look {"topic":"x"}'),
        ([gives(SEARCH, ["a"]), gives(Look(topic="y"), ["b"])] * 2, "two calls in turn"),
        ([raises(Look(topic=f"{n}"), ToolError("no")) for n in range(3)], "3 tool failures in a row"),
    ],
)
def test_b88_a_model_that_goes_round_in_circles_is_stopped_and_a_person_reads_why(moves: list[Any], words: str) -> None:
    task = play(player(on_stuck=ask("#desk")), HELLO, *moves)
    assert sum(isinstance(r.event, Decided) and r.event.by == "model" for r in task.log) == len(moves)
    question = task.waiting
    assert isinstance(question, AskHuman) and words in question.reason.replace("\\", "")


def test_b88_money_is_overspent_by_one_call_at_most() -> None:
    agent, moves = player(budget=Budget(usd=Decimal("0.50"), decisions=100), success=[]), list[Any]()
    for n in range(9):
        moves.append(ModelAsked(model="m", request="r", spent=Spent(usd=Decimal("0.20"))))
        task = play(agent, HELLO, *moves)
        if task.state.waiting_for == "budget":
            break
        moves.append(gives(Look(topic=f"{n}"), []))
    assert isinstance(last(task), LimitReached) and last(task).dimension == "usd"
    assert Decimal("0.50") <= task.state.used.usd < Decimal("0.70")


def test_a_done_that_is_decided_at_the_limit_still_ends_the_run() -> None:
    agent = player(budget=Budget(decisions=2))
    task = play(agent, HELLO, gives(SEARCH, ["y"]), Done(outcome={"text": "all kept"}))
    assert task.status == "done" and task.decisions == 2


def test_a_done_that_is_refused_at_the_limit_ends_at_the_limit() -> None:
    task = play(player(budget=Budget(decisions=1)), HELLO, Done(outcome={"text": "all kept"}))
    assert [type(r.event) for r in task.log[-2:]] == [DoneRefused, LimitReached]


def looking(task: Task) -> Tool[Any]:
    """Code that never stops."""
    return Look(topic=f"round {task.decisions}")


def test_a_steered_call_is_checked_and_counted_as_a_decision() -> None:
    agent, moves = player(steer=looking, budget=Budget(decisions=3)), list[Any]()
    for n in range(3):
        moves.append(gives(Look(topic=f"round {n}"), ["x"]))
    task = play(agent, HELLO, *moves)
    assert last(task) == LimitReached(dimension="decisions", used="3", limit="3")
    assert not any(isinstance(r.event, ModelAsked) for r in task.log)
    denied = play(player(steer=lambda task: None if task.denied(Keep) else Keep(rule="deny")), HELLO)
    assert denied.denied(Keep) and isinstance(denied.wants, AskModel), "code passes the rules too"


def test_success_is_decided_by_code_and_three_refusals_of_the_same_done_are_stagnation() -> None:
    done = Done(outcome={"text": "all kept"})
    task = play(player(), HELLO, done, done, done)
    assert isinstance(last(task), Stuck) and "done" in last(task).reason
    assert play(player(), HELLO, gives(SEARCH, ["y"]), done).log[-1].event == Finished(
        status="done", outcome=Text(text="all kept").model_dump()
    )


def test_a_page_that_is_shown_again_is_no_source() -> None:
    page = OpenCall(seq=3, tool="next_page", args="{}", kind="control", phase="approved")
    assert facts_of(4, Returned(call=3, result="ord_81f2 12.00"), page) == []


def test_what_no_model_can_mend_is_not_told_to_it() -> None:
    shown = shape(Failed(type="quota", message="The account of Ann is empty.", then="operator"))
    assert "Ann" not in repr(shown) and "quota" in repr(shown)
