"""How a run ends: success, nothing to do, cancel; how a finished task is opened again; and what code decides itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from tests.property.plays import PLAYER, Keep, Look, Pay, player
from twelvefold import Agent, Ctx, Done, NothingToDo, Read, State, Task, Text, Wait
from twelvefold.effects import AskModel, Feed, Rest, RunRead
from twelvefold.events import (
    Arrived,
    CancelAsked,
    Decided,
    DoneRefused,
    Finished,
    ModelAsked,
    Quarantined,
    Rejected,
    Resumed,
)
from twelvefold.record import hold
from twelvefold.reducer import MOST_TURNS, reduce
from twelvefold.testing import EPOCH, Played, gives, later, play, replay, says

HELLO = {"text": "hello"}
LOOK = gives(Look(topic="x"), ["y"])
DONE = Done(outcome={"text": "all kept"})
CANCEL = CancelAsked(by="ann", reason="never mind")


def kinds(task: Played) -> list[str]:
    return [type(r.event).__name__ for r in task.log]


def test_done_ends_with_an_outcome_of_the_declared_type() -> None:
    task = play(PLAYER, HELLO, LOOK, DONE)
    assert (task.status, task.outcome, task.wants) == ("done", Text(text="all kept"), Rest())
    assert kinds(task) == ["Arrived", "ModelAsked", "Decided", "Returned", "ModelAsked", "Decided", "Finished"]


def test_done_too_early_is_refused_and_the_model_reads_why() -> None:
    task = play(PLAYER, HELLO, DONE)
    assert task.log[-1].event == DoneRefused(call=3, why="Look first.")
    assert isinstance(task.wants, AskModel) and task.outcome is None
    assert play(PLAYER, HELLO, DONE, LOOK, DONE).status == "done"


def test_the_first_unmet_success_is_told() -> None:
    agent = player(success=[lambda task: None, lambda task: "second", lambda task: "third"])
    assert play(agent, HELLO, DONE).log[-1].event == DoneRefused(call=3, why="second")


def test_nothing_to_do_ends_without_the_success_check() -> None:
    task = play(PLAYER, HELLO, NothingToDo(reason="a test"))
    assert task.status == "done" and task.log[-1].event == Finished(
        status="done", reason="nothing_to_do", outcome={"text": "a test"}
    )


def test_a_finished_task_is_opened_again_by_a_message_and_starts_from_nothing() -> None:
    task = play(PLAYER, HELLO, LOOK, DONE, says("one more thing"))
    assert kinds(task)[-2:] == ["Arrived", "Reopened"] and isinstance(task.wants, AskModel)
    s = task.state
    assert (s.run, s.opened, s.used.decisions, s.tools, s.failures) == (2, 8, 0, (), 0)
    assert s.lifetime.decisions == 2 and task.read(s.opened)["payload"]["text"] == "one more thing"
    assert not task.did(Look) and task.decisions == 0


@pytest.mark.parametrize(
    "late",
    [
        Arrived(kind="event", source="ci", key="1", payload={}, wait_key="job-1"),
        CANCEL,
        Resumed(by="ann", verb="retry"),
    ],
)
def test_a_finished_task_is_opened_again_by_nothing_else(late: Any) -> None:
    task = play(PLAYER, HELLO, LOOK, DONE, late, later(days=1))
    assert (task.status, task.wants, task.state.run) == ("done", Rest(), 1)


def test_a_cancelled_task_stays_cancelled() -> None:
    task = play(PLAYER, HELLO, CANCEL, says("hello?"))
    assert (task.status, task.wants) == ("cancelled", Rest())


def test_a_cancel_of_an_earlier_run_is_forgotten() -> None:
    task = play(PLAYER, HELLO, LOOK, DONE, CANCEL, says("again"))
    assert task.status == "ready" and isinstance(task.wants, AskModel)


@pytest.mark.parametrize(
    "moves",
    [
        [],
        [Look(topic="x")],
        [Keep(text="x")],
        [Keep(rule="ask", text="x")],
        [Pay(text="x")],
        [Wait(why="x", seconds=9)],
        [Wait(why="x", event="job-1")],
        [Rejected(kind="prose", text="x"), Rejected(kind="prose", text="x")],
        [Quarantined(reason="Bug")],
        [Quarantined(reason="Bug", held=hold([ModelAsked(model="m", request="r")]))],
    ],
)
def test_cancel_ends_a_task_wherever_it_stands(moves: list[Any]) -> None:
    task = play(PLAYER, HELLO, *moves, CANCEL)
    assert (task.status, task.wants, task.state.call) == ("cancelled", Rest(), None)
    assert task.state.held == 0 and task.state.due_at() is None and task.state.wait_key is None


def first_look(task: Task) -> Any:
    return None if task.did(Look) else Look(topic="the event")


def test_code_speaks_first_and_the_model_fills_what_it_leaves_open() -> None:
    agent = player(steer=first_look)
    task = play(agent, HELLO)
    decided = task.log[-1].event
    assert isinstance(decided, Decided) and decided.by == "code" and task.wants == RunRead()
    assert task.decisions == 1, "a steered call is counted as a decision"
    task = play(agent, HELLO, LOOK_EVENT)
    assert isinstance(task.wants, AskModel)


LOOK_EVENT = gives(Look(topic="the event"), ["y"])


def test_code_that_always_says_the_same_is_stopped_like_a_model() -> None:
    class Peek(Read[int]):
        """Peek. Use before acting."""

        def run(self, ctx: Ctx) -> int:
            return 1

    agent = Agent(name="a", tools=[Peek], steer=lambda task: Peek())
    task = play(agent, HELLO, *[gives(Peek(), 1)] * 3)
    assert task.state.waiting_for == "operator"


def test_a_steer_that_never_lets_go_is_a_loop_that_is_reported() -> None:
    agent = player(steer=lambda task: Keep(rule="deny", text=str(task.state.seq)), budget=PLAYER.budget)
    task = play(agent, HELLO)
    assert task.state.waiting_for == "budget", "the budget ends it before the reducer has to"
    assert MOST_TURNS > 2 * 20


def test_agent_code_that_raises_changes_nothing() -> None:
    def broken(task: Task) -> Any:
        raise ZeroDivisionError

    task = play(PLAYER, HELLO)
    with pytest.raises(ZeroDivisionError):
        reduce(player(steer=broken), task, [], EPOCH)


def test_quarantine_holds_what_happened_and_retry_feeds_it_again() -> None:
    happened = [ModelAsked(model="m", request="r")]
    parked = play(PLAYER, HELLO, Quarantined(reason="Bug", held=hold(happened)))
    assert (parked.status, parked.state.reason, parked.wants) == ("quarantined", "Bug", Rest())
    again = play(PLAYER, HELLO, Quarantined(reason="Bug", held=hold(happened)), Resumed(by="ann", verb="retry"))
    assert again.wants == Feed(seq=2) and again.state.reason == ""
    fed = play(PLAYER, HELLO, Quarantined(reason="Bug", held=hold(happened)), Resumed(by="a", verb="retry"), *happened)
    assert fed.state.held == 0 and isinstance(fed.wants, AskModel)


def test_the_log_folds_though_the_reducer_raised() -> None:
    task = play(PLAYER, HELLO, Quarantined(reason="Bug", held=[["Nonsense", 9, {}]]))
    assert replay(task.log) == task.state


def test_time_never_goes_backwards_in_a_log() -> None:
    task = play(PLAYER, HELLO, later(hours=1), LOOK)
    moved = reduce(PLAYER, task, [], EPOCH)
    assert moved.events == () and moved.state.at == task.state.at
    earlier = reduce(PLAYER, task, [CANCEL], EPOCH)
    assert earlier.events[0].at == task.state.at


class Order(BaseModel):
    order_id: str


def test_the_opening_event_is_read_as_the_type_the_agent_accepts() -> None:
    agent = player(accepts=Order)
    assert play(agent, {"order_id": "7"}).event == Order(order_id="7")


class Fetch(Read[list[str]], was=("look",)):
    """Look something up. Use before acting."""

    topic: str

    def run(self, ctx: Ctx) -> list[str]:
        """Never called here."""
        return []


def test_a_renamed_tool_keeps_what_it_did_in_this_run() -> None:
    task = play(PLAYER, HELLO, LOOK)
    assert (task.count(Fetch), task.did(Fetch), task.last(Fetch), task.denied(Fetch)) == (1, True, ["y"], False)


def test_a_long_last_result_is_read_from_the_log() -> None:
    long = ["z" * 5_000]
    task = play(PLAYER, HELLO, gives(Look(topic="x"), long))
    assert task.state.tally("look").last == "" and task.last(Look) == long
    assert task.last(Keep) is None


def test_a_task_whose_events_cannot_be_read_says_so() -> None:
    with pytest.raises(LookupError, match="cannot be read here"):
        _ = Task(State(opened=1)).event
