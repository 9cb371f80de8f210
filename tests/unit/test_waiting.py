"""Waiting by time, by event, for a child, for a retry: what ends it, and what does not."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.property.plays import PLAYER, Look
from twelvefold import Budget, Delegate, State, Task, Wait
from twelvefold.decide import MOST_CHILDREN, budget_of, decided, usage_left
from twelvefold.effects import AskModel, Feed, Rest
from twelvefold.events import (
    Arrived,
    CancelAsked,
    ChildReturned,
    ChildStarted,
    Event,
    Failed,
    ModelAsked,
    Quarantined,
    Resumed,
    Spent,
)
from twelvefold.record import hold
from twelvefold.reducer import absorb, reduce
from twelvefold.testing import EPOCH, Played, gives, later, play, says

HELLO = {"text": "hello"}
HOUR = Wait(why="patience", seconds=3600)
JOB = Wait(why="the job reports", event="job-1")
EITHER = Wait(why="the job reports", event="job-1", seconds=60)
ASK_HELPER = Delegate(agent="helper", request="count")
RETRY = Resumed(by="ann", verb="retry")


def event(key: str | None) -> Arrived:
    return Arrived(kind="event", source="ci", key="1", payload={"ok": True}, wait_key=key)


def on(task: Task, *events: Event) -> Played:
    moved = absorb(PLAYER, task, events, EPOCH)
    played = Played(moved.state, read=task.read)
    object.__setattr__(played, "wants", moved.wants)
    return played


def test_a_wait_ends_when_its_time_has_passed() -> None:
    task = play(PLAYER, HELLO, HOUR, later(minutes=59))
    assert (task.state.waiting_for, task.wants, task.waiting) == ("timer", Rest(), HOUR)
    assert task.state.due_at() == EPOCH + timedelta(hours=1)
    task = play(PLAYER, HELLO, HOUR, later(minutes=61))
    assert isinstance(task.wants, AskModel) and task.did(Wait) and task.state.due_at() is None


def test_a_wait_for_an_event_ends_with_that_event() -> None:
    task = play(PLAYER, HELLO, JOB, later(days=20))
    assert (task.state.waiting_for, task.state.wait_key, task.wants) == ("event", "job-1", Rest())
    task = play(PLAYER, HELLO, JOB, event("job-1"))
    assert isinstance(task.wants, AskModel) and task.state.wait_key is None


@pytest.mark.parametrize("key", ["job-2", None])
@pytest.mark.parametrize("wait", [HOUR, JOB])
def test_another_event_is_kept_and_ends_no_wait(wait: Wait, key: str | None) -> None:
    task = play(PLAYER, HELLO, wait, event(key))
    assert task.status == "waiting" and task.log[-1].event == event(key)


def test_whichever_comes_first_ends_a_wait_with_both() -> None:
    assert isinstance(play(PLAYER, HELLO, EITHER, event("job-1")).wants, AskModel)
    assert isinstance(play(PLAYER, HELLO, EITHER, later(seconds=60)).wants, AskModel)


@pytest.mark.parametrize("wait", [HOUR, JOB, EITHER])
def test_a_message_interrupts_a_wait(wait: Wait) -> None:
    task = play(PLAYER, HELLO, wait, says("how far are you?"))
    assert isinstance(task.wants, AskModel) and task.state.call is None


@pytest.mark.parametrize("wait", [HOUR, JOB])
def test_cancel_ends_a_wait(wait: Wait) -> None:
    assert play(PLAYER, HELLO, wait, CancelAsked(by="ann")).status == "cancelled"


def test_wait_needs_something_to_wait_for() -> None:
    with pytest.raises(ValueError, match="Give seconds, or an event, or both"):
        Wait(why="nothing")


def unreachable(attempt: int, seconds: int) -> Failed:
    at = EPOCH + timedelta(seconds=seconds)
    return Failed(type="timeout", message="no answer", then="retry", attempt=attempt, not_before=at)


def test_a_model_that_does_not_answer_is_asked_again_later_and_a_message_does_not_shorten_that() -> None:
    task = play(PLAYER, HELLO, unreachable(1, 30), says("hello?"))
    assert (task.state.waiting_for, task.wants, task.state.transport) == ("retry", Rest(), 1)
    task = play(PLAYER, HELLO, unreachable(1, 30), later(seconds=30))
    assert isinstance(task.wants, AskModel)
    task = play(PLAYER, HELLO, unreachable(1, 30), later(seconds=30), Look(topic="x"))
    assert task.state.transport == 0


def test_a_model_that_no_waiting_can_mend_parks_the_task_until_somebody_retries() -> None:
    broken = Failed(type="auth", message="bad key", then="operator")
    task = play(PLAYER, HELLO, broken, says("hello?"), later(days=9))
    assert (task.state.waiting_for, task.state.reason, task.wants) == ("operator", "auth", Rest())
    task = play(PLAYER, HELLO, broken, RETRY)
    assert isinstance(task.wants, AskModel) and task.state.reason == ""


def returned(task: Task, *, run: int = 1, **unused: Any) -> ChildReturned:
    return ChildReturned(child=task.state.children[0].id, run=run, status="done", result={"text": "3"}, **unused)


def test_a_child_is_paid_with_half_of_what_is_left_and_gives_the_rest_back() -> None:
    task = play(PLAYER, HELLO, gives(Look(topic="x"), ["y"]), ASK_HELPER)
    born = task.log[-1].event
    assert isinstance(born, ChildStarted) and born.agent == "helper"
    assert (born.decisions, born.tokens, str(born.usd), born.active_ms) == (5, 3_000, "0.25", 30_000)
    assert (task.state.used.decisions, task.state.used.tokens) == (7, 3_000)
    assert (task.state.waiting_for, task.wants) == ("child", Rest())
    after = on(task, returned(task, decisions=4, tokens=2_500))
    assert (after.state.used.decisions, after.state.used.tokens) == (3, 500)
    assert after.state.children == () and after.count(Delegate) == 1


def test_a_child_has_an_identity_that_a_repeat_finds_again() -> None:
    first, second = (play(PLAYER, HELLO, ASK_HELPER).state.children for _ in range(2))
    assert first == second and len(first) == 1


def test_a_child_of_an_earlier_run_refunds_nothing() -> None:
    task = play(PLAYER, HELLO, ASK_HELPER)
    used = task.state.used
    assert on(task, returned(task, run=7, tokens=100)).state.used == used


def test_a_message_does_not_end_the_wait_for_a_child() -> None:
    task = play(PLAYER, HELLO, ASK_HELPER, says("hurry"))
    assert task.state.waiting_for == "child"


def test_a_stranger_s_result_ends_no_wait_and_refunds_nothing() -> None:
    task = play(PLAYER, HELLO, ASK_HELPER)
    after = on(task, ChildReturned(child="stranger", run=1, status="done", tokens=3_000))
    assert (after.state.waiting_for, after.state.used) == ("child", task.state.used)


def test_a_child_that_comes_back_to_a_quarantined_parent_is_not_started_again() -> None:
    task = on(play(PLAYER, HELLO, ASK_HELPER), Quarantined(reason="Bug"))
    after = on(task, returned(task), RETRY)
    assert after.state.children_born == 1 and after.state.call is None and isinstance(after.wants, AskModel)


def test_a_quarantined_parent_goes_on_waiting_for_its_child() -> None:
    after = on(play(PLAYER, HELLO, ASK_HELPER), Quarantined(reason="Bug"), RETRY)
    assert after.state.waiting_for == "child"


def test_a_child_does_not_push_out_what_a_quarantine_holds() -> None:
    task = play(PLAYER, HELLO, ASK_HELPER)
    held = hold([ModelAsked(model="m", request="r")])
    parked = on(task, Quarantined(reason="Bug", held=held), returned(task))
    assert parked.state.held and parked.state.status == "quarantined"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"children_born": MOST_CHILDREN}, "20 children a run is the limit"),
        ({"depth": 3}, "a depth of 3 is the limit"),
    ],
)
def test_there_is_a_limit_to_children(change: dict[str, Any], words: str) -> None:
    start = play(PLAYER, HELLO)
    task = Task(start.state.model_copy(update=change), read=start.read)
    call = PLAYER.menu["delegate"].model_validate(ASK_HELPER.model_dump())
    moved = reduce(PLAYER, task, [ModelAsked(model="m", request=""), decided(call, by="model")], EPOCH)
    failed = moved.events[-1].event
    assert isinstance(failed, Failed) and words in failed.message
    assert isinstance(moved.wants, AskModel)


@pytest.mark.parametrize("spent", [Spent(tokens_in=5_999), Spent(usd=Decimal("0.50")), Spent(ms=59_999)])
def test_without_enough_left_no_child_is_born(spent: Spent) -> None:
    task = play(PLAYER, HELLO)
    call = decided(PLAYER.menu["delegate"].model_validate(ASK_HELPER.model_dump()), by="model")
    asked = ModelAsked(model="m", request="", spent=spent)
    moved = reduce(PLAYER, task, [asked, call], EPOCH)
    failed = next(r.event for r in moved.events if isinstance(r.event, Failed))
    assert "too little to share" in failed.message
    assert moved.state.children_born == 0


def test_a_child_s_own_budget_is_the_limit_where_it_is_smaller() -> None:
    start = play(PLAYER, HELLO)
    task = Task(
        start.state, read=start.read, peers={"helper": Budget(decisions=1, tokens=10, active=timedelta(seconds=1))}
    )
    call = decided(PLAYER.menu["delegate"].model_validate(ASK_HELPER.model_dump()), by="model")
    born = reduce(PLAYER, task, [ModelAsked(model="m", request=""), call], EPOCH).events[-1].event
    assert isinstance(born, ChildStarted) and (born.decisions, born.tokens, born.active_ms) == (1, 10, 1_000)


def test_what_is_left_is_the_budget_without_what_was_used() -> None:
    task = play(PLAYER, HELLO, Look(topic="x"))
    left = usage_left(PLAYER, task.state)
    assert left.decisions == 11 and left.tokens == 6_000
    given = State(budget=Budget(decisions=3))
    assert budget_of(PLAYER, given).decisions == 3


def test_a_quarantine_keeps_a_wait_open_and_its_arrivals_for_later() -> None:
    for wait, what in ((HOUR, "timer"), (JOB, "event")):
        parked = on(play(PLAYER, HELLO, wait), Quarantined(reason="Bug"))
        assert (parked.state.status, parked.state.waiting_for) == ("quarantined", None)
        assert on(parked, RETRY).state.waiting_for == what
        assert isinstance(on(parked, event("job-1"), says_hello(), RETRY).wants, AskModel)


def says_hello() -> Arrived:
    return Arrived(kind="message", source="s", key="2", payload={"text": "hello"})


def test_only_retry_and_cancel_lead_out_of_quarantine() -> None:
    parked = on(play(PLAYER, HELLO, JOB), Quarantined(reason="Bug"))
    for arrival in (event("job-1"), says_hello(), Resumed(by="ann", verb="raise", decisions=1)):
        assert on(parked, arrival).state.status == "quarantined"
    assert on(parked, CancelAsked(by="ann")).state.status == "cancelled"
    assert not isinstance(on(parked, RETRY).wants, Feed)
