"""Limits: budgets, stagnation, failures in a row; what ends a run, and what an operator can do about it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from tests.property.plays import PLAYER, Keep, Look, Play, player
from twelvefold import Budget, ToolError, Wait
from twelvefold.budget import Usage, stagnation
from twelvefold.decide import decided
from twelvefold.effects import AskModel, Rest, RunRead
from twelvefold.events import Arrived, Failed, LimitReached, ModelAsked, Rejected, Resumed, Returned, Spent, Stuck
from twelvefold.reducer import reduce
from twelvefold.testing import EPOCH, Played, gives, later, play, raises, says

HELLO = {"text": "hello"}
MILK, EGGS = Look(topic="milk"), Look(topic="eggs")
RETRY = Resumed(by="ann", verb="retry")


def looked(*calls: Look) -> list[Any]:
    return [gives(call, ["found"]) for call in calls]


def different(count: int) -> list[Any]:
    return looked(*(Look(topic=f"topic {n}") for n in range(count)))


def last(task: Played) -> Any:
    return task.log[-1].event


def test_the_decisions_of_a_run_are_counted_and_a_raise_adds_some() -> None:
    small = player(budget=Budget(decisions=3))
    task = play(small, HELLO, *different(3))
    assert last(task) == LimitReached(dimension="decisions", used="3", limit="3")
    assert (task.state.waiting_for, task.wants) == ("budget", Rest())
    raised = play(small, HELLO, *different(3), Resumed(by="ann", verb="raise", decisions=1), MILK)
    assert isinstance(raised.wants, RunRead)
    more = play(small, HELLO, *different(3), Resumed(by="ann", verb="raise", decisions=1), gives(MILK, ["x"]))
    assert last(more) == LimitReached(dimension="decisions", used="4", limit="4")


def test_a_raise_of_another_dimension_does_not_help() -> None:
    task = play(player(budget=Budget(decisions=1)), HELLO, *different(1), Resumed(by="ann", verb="raise", tokens=5))
    assert task.state.waiting_for == "budget" and isinstance(last(task), LimitReached)


def test_a_retry_does_not_lift_a_limit() -> None:
    task = play(player(budget=Budget(decisions=1)), HELLO, *different(1), RETRY)
    assert task.state.waiting_for == "budget"


@pytest.mark.parametrize(
    ("spent", "dimension", "used"),
    [
        ({"tokens_in": 6_000, "tokens_out": 5}, "tokens", "6005"),
        ({"usd": Decimal("0.50")}, "usd", "0.50"),
        ({"ms": 60_000}, "active", "60000"),
    ],
)
def test_each_dimension_forbids_the_next_decision_but_not_the_one_that_is_paid(
    spent: dict[str, Any], dimension: str, used: str
) -> None:
    task = play(PLAYER, HELLO, ModelAsked(model="m", request="r", spent=Spent(**spent)))
    assert (last(task).dimension, last(task).used) == (dimension, used)
    asked = ModelAsked(model="m", request="r", spent=Spent(**spent))
    moved = reduce(PLAYER, play(PLAYER, HELLO), [asked, decided(MILK, by="model")], EPOCH)
    assert moved.wants == RunRead()


def test_waiting_never_counts() -> None:
    task = play(PLAYER, HELLO, Wait(why="x", seconds=2_000_000), later(days=29))
    assert task.state.used.active_ms == 0 and isinstance(task.wants, AskModel)


def test_an_absolute_deadline_counts_waiting() -> None:
    agent = player(budget=Budget(deadline=timedelta(hours=1)))
    task = play(agent, HELLO, Wait(why="x", seconds=7_200), later(hours=3))
    assert last(task).dimension == "deadline"
    assert isinstance(play(agent, HELLO, later(minutes=59)).wants, AskModel)
    assert play(agent, HELLO, later(minutes=61)).state.waiting_for == "budget"


def test_an_operator_sets_the_absolute_end_of_a_run_with_or_without_one_in_its_budget() -> None:
    moved = Resumed(by="ann", verb="raise", deadline=EPOCH + timedelta(hours=2))
    for agent in (PLAYER, player(budget=Budget(deadline=timedelta(hours=1)))):
        assert isinstance(play(agent, HELLO, moved, later(minutes=119)).wants, AskModel)
        over = last(play(agent, HELLO, moved, later(minutes=121)))
        assert (over.dimension, over.limit) == ("deadline", (EPOCH + timedelta(hours=2)).isoformat())


def test_a_task_s_life_holds_ten_budgets() -> None:
    budget = Budget(decisions=3)
    assert budget.exhausted(Usage(decisions=29), times=10) is None
    assert budget.exhausted(Usage(decisions=30), times=10) == ("decisions", "30", "30")


def test_each_of_ten_runs_has_its_budget_and_the_eleventh_has_none() -> None:
    agent, moves = player(budget=Budget(decisions=2), success=[]), list[Any]()
    done = agent.menu["nothing_to_do"].model_validate({"reason": "x"})
    for _ in range(10):
        moves += [gives(MILK, ["x"]), done, says("again")]
    task = play(agent, HELLO, *moves)
    assert task.state.run == 11 and last(task) == LimitReached(dimension="decisions", used="20", limit="20")


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (("a", "a", "a"), "the same call 3 times: a"),
        (("x", "a", "a", "a"), "the same call 3 times: a"),
        (("a", "b", "a", "b"), "two calls in turn: a and b"),
        (("a", "a"), None),
        (("a", "b", "a"), None),
        (("a", "a", "b", "a"), None),
        ((), None),
    ],
)
def test_stagnation_names_what_repeats(marks: tuple[str, ...], words: str | None) -> None:
    assert stagnation(marks) == words


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        (looked(MILK, MILK, MILK), 'the same call 3 times: look {"topic":"milk"}'),
        (looked(MILK, EGGS, MILK, EGGS), "two calls in turn: look"),
        ([raises(Look(topic=str(n)), ToolError("no")) for n in range(3)], "3 tool failures in a row"),
        ([says("well"), says("well")], "2 unusable replies in a row"),
    ],
)
def test_a_run_that_does_not_get_on_stops_and_says_why(moves: list[Any], words: str) -> None:
    task = play(PLAYER, HELLO, *moves)
    assert isinstance(last(task), Stuck) and words in last(task).reason
    assert (task.state.waiting_for, task.wants) == ("operator", Rest())
    again = play(PLAYER, HELLO, *moves, RETRY)
    assert isinstance(again.wants, AskModel)

    given_up = play(player(on_stuck="failed"), HELLO, *moves)
    assert (given_up.status, given_up.state.reason) == ("failed", "stuck")


def test_the_same_call_with_other_arguments_or_after_news_is_no_stagnation() -> None:
    assert isinstance(play(PLAYER, HELLO, *looked(MILK, MILK, EGGS)).wants, AskModel)
    news = Arrived(kind="message", source="s", key="k", payload={"text": "look again"})
    assert isinstance(play(PLAYER, HELLO, *looked(MILK, MILK), news, *looked(MILK, MILK)).wants, AskModel)


def test_a_success_between_failures_starts_the_count_anew() -> None:
    fail = [raises(Keep(text=str(n)), ToolError("no")) for n in range(2)]
    assert isinstance(play(PLAYER, HELLO, *fail, *looked(MILK), *fail).wants, AskModel)
    rejected: list[Any] = [says("well"), gives(MILK, ["x"]), says("well")]
    assert isinstance(play(PLAYER, HELLO, *rejected).wants, AskModel)


def test_a_rejected_reply_costs_a_decision() -> None:
    task = play(PLAYER, HELLO, says("well"))
    assert isinstance(last(task), Rejected) and task.state.used.decisions == 1


def test_a_tool_s_error_reaches_the_model_whole() -> None:
    error = ToolError("no such order", affected=("order_id",), retry_after=5, suggestion="look it up")
    failed = last(play(PLAYER, HELLO, raises(Keep(text="x"), error)))
    assert isinstance(failed, Failed)
    assert (failed.affected, failed.retry_after, failed.suggestion) == (("order_id",), 5, "look it up")


def test_several_reads_of_one_reply_cost_one_decision() -> None:
    play_ = Play()
    play_.feed(ModelAsked(model="m", request="r"), *play_.several(Random(1)))
    assert play_.state.used.decisions == 1
    assert [type(r.event) for r in play_.log].count(Returned) == 2
