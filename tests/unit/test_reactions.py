"""What an agent declares about being stuck, about messages that come in between, about plans, and about results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.property.plays import Keep, Look, Pay, player
from twelvefold import Agent, DeclarationError, Effect, Plan, ToolError, Wait, ask
from twelvefold.controls import PlanStep
from twelvefold.effects import AskModel, Rest
from twelvefold.events import ApprovalAsked, ApprovalMoved, CancelAsked, Decided, Finished, Resumed, Stuck
from twelvefold.questions import AskHuman
from twelvefold.shape import Row
from twelvefold.testing import Played, approves, gives, later, play, raises, says
from twelvefold.window import build

HELLO = {"text": "hello"}
PROSE = [says("well"), says("well")]
STUCK = ask("#refund-ops", "The shop's handbook is the rule.", deadline=timedelta(hours=2))
NEWS = "wait, not that one"


def kinds(task: Played, last: int = 0) -> list[str]:
    return [type(r.event).__name__ for r in task.log][-last:]


def alone(**change: Any) -> Agent:
    """An agent whose model may ask nobody."""
    return player(tools=[Look, Keep, Pay, Plan], people=[], **change)


def answered(task: Played, text: str) -> ApprovalMoved:
    assert task.state.call is not None
    return ApprovalMoved(call=task.state.call.seq, to="answered", by="ann", result=text)


@pytest.mark.parametrize("agent", [alone(on_stuck=STUCK), player(on_stuck=STUCK)], ids=["code only", "model too"])
def test_a_stuck_run_asks_a_person_how_to_go_on_and_goes_on(agent: Agent) -> None:
    task = play(agent, HELLO, *PROSE)
    assert kinds(task, 3) == ["Stuck", "Decided", "ApprovalAsked"]
    assert task.state.waiting_for == "answer" and task.state.reason == ""
    question = task.waiting
    assert isinstance(question, AskHuman) and question.target == "#refund-ops"
    assert "2 unusable replies in a row" in question.reason and "The shop's handbook is the rule." in question.reason
    asked = task.log[-1].event
    assert isinstance(asked, ApprovalAsked) and asked.kind == "question"
    assert asked.deadline - task.log[-1].at == timedelta(hours=2)

    on = play(agent, HELLO, *PROSE, answered(task, "Look for milk first."), gives(Look(topic="milk"), ["yes"]))
    assert isinstance(on.wants, AskModel), "the counts of the run start anew"
    assert on.state.failures == on.state.rejections == 0


def test_a_question_that_nobody_answers_waits_for_an_operator() -> None:
    task = play(alone(on_stuck=STUCK), HELLO, *PROSE, later(hours=3))
    assert (task.state.waiting_for, task.state.reason, task.wants) == ("operator", "unanswered", Rest())
    again = play(alone(on_stuck=STUCK), HELLO, *PROSE, later(hours=3), Resumed(by="ann", verb="retry"))
    assert isinstance(again.wants, AskModel)


def test_a_model_that_may_ask_nobody_is_not_offered_the_question_and_may_not_decide_it() -> None:
    agent = alone(on_stuck=STUCK)
    task = play(agent, HELLO)
    assert "ask_human" not in agent.offered(task)
    refused = play(agent, HELLO, AskHuman(reason="May I?", target="#refund-ops"))
    assert "PolicyDenied" in kinds(refused) and refused.state.call is None


@pytest.mark.parametrize("wrong", [ask(""), ask("ann@shop.example"), ask("a, b"), "retry", None])
def test_on_stuck_names_one_person_of_the_directory(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match=r"on_stuck=ask\('#refund-ops'\)"):
        alone(on_stuck=wrong)


def test_a_message_during_an_approval_is_shown_to_who_decides_unless_the_agent_says_otherwise() -> None:
    task = play(alone(), HELLO, Pay(rule="ask"), says(NEWS))
    assert (task.state.waiting_for, kinds(task, 1)) == ("approval", ["Arrived"])


def test_a_message_gives_the_call_up_and_the_model_decides_anew() -> None:
    agent = alone(on_message="decide")
    task = play(agent, HELLO, Pay(rule="ask"), says(NEWS))
    moved = task.log[-1].event
    assert isinstance(moved, ApprovalMoved) and moved.to == "superseded" and "message" in moved.reason
    assert isinstance(task.wants, AskModel) and task.state.call is None
    with pytest.raises(AssertionError, match="Nothing waits for a person"):
        play(agent, HELLO, Pay(rule="ask"), says(NEWS), approves())


def test_a_message_cancels_the_run_where_the_agent_says_so() -> None:
    task = play(alone(on_message="cancel"), HELLO, Pay(rule="ask"), says(NEWS))
    assert kinds(task, 4) == ["Arrived", "CancelAsked", "ApprovalMoved", "Finished"]
    assert task.status == "cancelled" and isinstance(task.log[-1].event, Finished)
    assert isinstance(task.log[-3].event, CancelAsked)


@pytest.mark.parametrize("on_message", ["decide", "cancel"])
def test_what_came_before_the_question_interrupts_nothing(on_message: str) -> None:
    task = play(alone(on_message=on_message), HELLO, Wait(why="x", event="k"), says(NEWS), Pay(rule="ask"))
    assert task.state.waiting_for == "approval"


@pytest.mark.parametrize("on_message", ["decide", "cancel"])
def test_a_message_is_the_answer_s_business_where_a_question_is_open(on_message: str) -> None:
    agent = player(on_message=on_message)
    task = play(agent, HELLO, agent.menu["ask_human"].model_validate({"reason": "why?", "target": "desk"}), says(NEWS))
    assert task.state.waiting_for == "answer"


def test_on_message_is_one_of_three() -> None:
    with pytest.raises(DeclarationError, match="new_information"):
        alone(on_message="ignore")


def planned(*steps: str) -> Plan:
    return Plan(steps=[PlanStep(what=step) for step in steps])


def test_a_plan_is_noted_shown_and_enforces_nothing() -> None:
    agent = alone()
    task = play(agent, HELLO, planned("look for milk", "pay"), gives(Keep(text="else"), {"amount": "1"}))
    assert isinstance(task.wants, AskModel) and task.count(Plan) == 1
    rows = [Row(r.seq, type(r.event).__name__, 1, r.event.data) for r in task.log]
    assert "look for milk" in build(agent, task, "prompt", rows, AskModel(1)).user
    assert "plan" not in player().menu, "only where the agent lists it"


@pytest.mark.parametrize("count", [0, 6])
def test_a_plan_has_one_to_five_steps(count: int) -> None:
    with pytest.raises(ValueError, match="steps"):
        planned(*["x"] * count)


def test_a_plan_between_failures_is_no_success() -> None:
    fail = [raises(Look(topic=str(n)), ToolError("no")) for n in range(3)]
    task = play(alone(), HELLO, fail[0], planned("one"), fail[1], planned("two"), fail[2])
    assert isinstance(task.log[-1].event, Stuck) and "3 tool failures" in task.log[-1].event.reason


def test_a_plan_does_not_count_among_the_five_tools() -> None:
    assert [type(r.event) for r in play(alone(), HELLO, planned("x")).log][2] is Decided


def test_the_capability_execute_is_reserved_and_says_what_to_do_instead() -> None:
    with pytest.raises(DeclarationError, match=r"'execute' is reserved.*no sandbox.*typed arguments"):

        class RunShell(Effect[str], needs={"execute"}):
            """Run a command. Use never."""

            def run(self, ctx: Any) -> str:
                """Never called."""
                return ""
