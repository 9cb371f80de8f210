"""Doubt: an effect that has begun has ended only when somebody knows; until then nothing else begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.property.plays import PLAYER, Paid, Pay, PayAgain, PayAndLook
from twelvefold import Agent, Ctx, Effect
from twelvefold.effects import AskModel, Feed, Find, Record, Rest, RunEffect
from twelvefold.errors import Unreadable
from twelvefold.events import (
    Arrived,
    Blocked,
    CancelAsked,
    Doubted,
    Event,
    Quarantined,
    Resumed,
    Returned,
    Settled,
    Started,
)
from twelvefold.fold import fold_all
from twelvefold.record import Recorded, hold
from twelvefold.reducer import Moved, absorb, reduce
from twelvefold.state import Task
from twelvefold.testing import EPOCH, Played, did_not_happen, doubt, gives, happened, later, play

HELLO = {"text": "hello"}
PAID: Any = {"amount": "12"}
PAY, AGAIN, FIND = Pay(text="1"), PayAgain(text="1"), PayAndLook(text="1")
MESSAGE = Arrived(kind="message", source="s", key="k", payload={"text": "well?"})


def call_of(task: Task) -> int:
    assert task.state.call is not None
    return task.state.call.seq


def on(task: Task, *events: Event, at: timedelta = timedelta(0)) -> tuple[Task, Moved]:
    moved = reduce(PLAYER, task, events, EPOCH + at)
    return Task(moved.state, read=task.read), moved


def begun(task: Task) -> Task:
    """The task after the Begin of what it wants."""
    moved = reduce(PLAYER, task, [], EPOCH)
    assert isinstance(moved.wants, RunEffect) and moved.state.call is not None
    call = moved.state.call
    started = Started(call=call.seq, key=moved.wants.key, attempt=moved.wants.attempt, digest=call.digest)
    return Task(fold_all(moved.state, [Recorded(moved.state.seq + 1, EPOCH, started)]), read=task.read)


@pytest.mark.parametrize(("call", "wants"), [(PAY, Rest()), (FIND, Rest())])
def test_a_lost_answer_waits_to_be_settled(call: Any, wants: Any) -> None:
    task = play(PLAYER, HELLO, doubt(call))
    assert (task.state.waiting_for, task.wants) == ("settle", wants)


def test_a_lost_worker_after_begin_is_doubt() -> None:
    task = begun(play(PLAYER, HELLO, PAY))
    moved = absorb(PLAYER, task, [], EPOCH)
    assert [type(r.event) for r in moved.events] == [Doubted]
    assert moved.state.waiting_for == "settle"


def test_nothing_is_decided_while_in_doubt_but_messages_are_kept() -> None:
    task = play(PLAYER, HELLO, doubt(PAY), MESSAGE, later(days=30))
    assert (task.state.waiting_for, task.wants) == ("settle", Rest())
    assert task.state.message_seq == task.state.seq


def test_it_happened_is_recorded_and_returned() -> None:
    task = play(PLAYER, HELLO, doubt(PAY), happened(PAID))
    assert task.last(Pay) == Paid.model_validate(PAID)
    assert isinstance(task.wants, AskModel)
    _, moved = on(play(PLAYER, HELLO, doubt(PAY)), Settled(call=3, how="happened", by="ann", result=PAID))
    assert moved.wants == Record()


def test_it_did_not_happen_is_a_failure_the_model_sees() -> None:
    task = play(PLAYER, HELLO, doubt(PAY), did_not_happen())
    assert task.state.failures == 1 and isinstance(task.wants, AskModel)


def test_nobody_can_tell_ends_the_run() -> None:
    task = play(PLAYER, HELLO, doubt(PAY))
    task = play(PLAYER, HELLO, doubt(PAY), Settled(call=call_of(task), how="abandoned", by="ann"))
    assert (task.status, task.state.reason) == ("failed", "in_doubt")


def test_the_same_key_is_sent_three_times_then_a_person_is_asked() -> None:
    task: Task = play(PLAYER, HELLO, AGAIN)
    keys = set()
    for attempt in (1, 2, 3):
        task = begun(task)
        assert task.state.call is not None
        assert task.state.call.attempt == attempt
        keys.add(task.state.call.key)
        moved = absorb(PLAYER, task, [], EPOCH)
        task = Task(moved.state, read=task.read)
    assert len(keys) == 1
    assert (task.state.waiting_for, moved.wants) == ("settle", Rest())


def test_only_the_same_key_is_ever_sent_again_whatever_woke_the_task() -> None:
    task = play(PLAYER, HELLO, doubt(PAY))
    woken = Task(task.state.model_copy(update={"status": "ready", "waiting_for": None}))
    moved = absorb(PLAYER, woken, [], EPOCH)
    assert (moved.state.waiting_for, moved.wants) == ("settle", Rest())


def test_find_is_asked_only_after_the_delay() -> None:
    task = play(PLAYER, HELLO, doubt(FIND), later(seconds=29))
    assert task.wants == Rest()
    task = play(PLAYER, HELLO, doubt(FIND), later(seconds=31))
    assert task.wants == Find()


def test_find_that_cannot_tell_is_asked_again_later() -> None:
    task = play(PLAYER, HELLO, doubt(FIND), later(seconds=31))
    unknown = Settled(call=call_of(task), how="unknown", by="find", settle_at=EPOCH + timedelta(seconds=90))
    assert play(PLAYER, HELLO, doubt(FIND), later(seconds=31), unknown).wants == Rest()
    assert play(PLAYER, HELLO, doubt(FIND), later(seconds=31), unknown, later(seconds=60)).wants == Find()


def test_a_settlement_of_another_call_is_only_a_note() -> None:
    task = play(PLAYER, HELLO, doubt(PAY), Settled(call=1, how="not", by="ann"))
    assert task.state.waiting_for == "settle"


def test_under_cancel_nothing_is_sent_again() -> None:
    moved = absorb(PLAYER, begun(play(PLAYER, HELLO, AGAIN)), [CancelAsked(by="ann")], EPOCH)
    assert (moved.state.waiting_for, moved.wants) == ("settle", Rest())
    task = Task(moved.state)
    task, moved = on(task, Settled(call=call_of(task), how="not", by="ann"))
    assert moved.state.status == "cancelled"


def test_under_cancel_find_is_asked_and_then_it_is_cancelled() -> None:
    task = play(PLAYER, HELLO, doubt(FIND), CancelAsked(by="ann"))
    assert (task.state.waiting_for, task.wants) == ("settle", Rest())
    task = play(PLAYER, HELLO, doubt(FIND), CancelAsked(by="ann"), later(seconds=31))
    assert task.wants == Find()
    task = play(PLAYER, HELLO, doubt(FIND), CancelAsked(by="ann"), later(seconds=31), did_not_happen())
    assert task.status == "cancelled"


def test_under_cancel_what_happened_is_still_recorded() -> None:
    task = play(PLAYER, HELLO, doubt(PAY), CancelAsked(by="ann"), happened(PAID))
    assert task.status == "cancelled" and task.count(Pay) == 1


def test_a_freeze_holds_a_second_sending_back_without_closing_the_call() -> None:
    task, _ = on(begun(play(PLAYER, HELLO, AGAIN)))
    key = task.state.call.key if task.state.call else ""
    task, moved = on(task, Blocked(call=call_of(task), scope="*"))
    assert (moved.state.waiting_for, moved.wants) == ("settle", Rest())
    moved = absorb(PLAYER, task, [], EPOCH + timedelta(seconds=61))
    assert moved.wants == RunEffect(attempt=2, key=key)


def test_a_freeze_before_the_first_sending_closes_the_call() -> None:
    task = play(PLAYER, HELLO, PAY)
    task = play(PLAYER, HELLO, PAY, Blocked(call=call_of(task), scope="*"))
    assert task.denied(Pay) and isinstance(task.wants, AskModel)


def test_what_was_brought_back_survives_a_quarantine_and_a_cancel() -> None:
    task = begun(play(PLAYER, HELLO, PAY))
    returned = Returned(call=call_of(task), result=PAID)
    task, moved = on(task, Quarantined(reason="Bug", held=hold([returned])))
    assert (moved.state.status, moved.wants) == ("quarantined", Rest())
    for verb in (Resumed(by="ann", verb="retry"), CancelAsked(by="ann")):
        again, moved = on(task, MESSAGE, verb)
        assert moved.wants == Feed(task.state.held)
        again, moved = on(again, returned)
        assert again.count(Pay) == 1 and again.state.held == 0
    assert moved.state.status == "cancelled"


class Keyed(Effect[Paid]):
    """Pay. Use once."""

    order: str

    def key(self) -> str:
        """The business fact."""
        return f"refund:{self.order}"

    def run(self, ctx: Ctx) -> Paid:
        """Never called here."""
        return Paid.model_validate(PAID)


def test_the_key_is_the_business_fact_where_one_is_named_else_task_and_call() -> None:
    assert play(Agent(name="a", tools=[Keyed]), HELLO, Keyed(order="7")).wants == RunEffect(1, "test:refund:7")
    task = play(PLAYER, HELLO, PAY)
    assert task.wants == RunEffect(1, f"{task.id}:{call_of(task)}")


def test_a_begun_call_of_a_tool_that_is_gone_is_left_to_newer_code() -> None:
    task: Played = play(PLAYER, HELLO, PAY)
    with pytest.raises(Unreadable):
        absorb(Agent(name="b", tools=[]), begun(task), [], EPOCH)


def test_a_result_goes_with_its_call() -> None:
    task = play(PLAYER, HELLO, gives(PAY, PAID))
    assert isinstance(task.log[-1].event, Returned) and task.state.call is None
