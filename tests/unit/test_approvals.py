"""Approvals: asked, decided, expired, stale; an approval is of what was shown, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.property.plays import PLAYER, Keep, Pay, player
from twelvefold import AUTO, DESTRUCTIVE, Agent, Ctx, Done, Read, Task, Text, Verdict, Write, ask, deny
from twelvefold.canonical import call_digest
from twelvefold.effects import AskModel, Rest, RunEffect, RunRead, RunWrite
from twelvefold.events import (
    ApprovalAsked,
    ApprovalMoved,
    Arrived,
    CancelAsked,
    Decided,
    DoneRefused,
    Event,
    Finished,
    PolicyDenied,
)
from twelvefold.reducer import reduce
from twelvefold.state import State
from twelvefold.testing import EPOCH, Played, approves, gives, later, play, rejects

HELLO = {"text": "hello"}
PAY = Pay(rule="ask", text="12")
KEEP = Keep(rule="ask", text="milk")
PAID = {"amount": "12"}


def of(task: Played, kind: type[Any]) -> list[Any]:
    return [r.event for r in task.log if isinstance(r.event, kind)]


def stale(task: Played) -> ApprovalMoved:
    assert task.state.call is not None
    return ApprovalMoved(call=task.state.call.seq, to="stale")


def test_an_asked_call_waits_for_a_person_and_then_runs_as_it_was_shown() -> None:
    asked = play(PLAYER, HELLO, PAY)
    assert (asked.status, asked.state.waiting_for, asked.waiting, asked.wants) == ("waiting", "approval", PAY, Rest())
    approval = of(asked, ApprovalAsked)[0]
    assert approval.target == "#people" and approval.reason == "please look at 12"

    approved = play(PLAYER, HELLO, PAY, approves())
    assert isinstance(approved.wants, RunEffect)
    assert approved.state.call is not None and approved.state.call.digest == approval.digest
    decided = of(approved, Decided)[0]
    assert approval.digest == call_digest(approved.id, approval.call, "pay", decided.args, approval.verdict)


def test_a_rejected_call_is_closed_and_the_model_is_asked_again() -> None:
    task = play(PLAYER, HELLO, KEEP, rejects())
    assert task.state.call is None and isinstance(task.wants, AskModel)
    assert task.denied(Keep) and not task.did(Keep)


def test_a_denied_call_never_waits_and_the_model_is_told_why() -> None:
    task = play(PLAYER, HELLO, Keep(rule="deny", text="x"))
    assert of(task, PolicyDenied)[0].why == "denied by rule"
    assert isinstance(task.wants, AskModel) and task.denied(Keep)


def test_expired_is_not_rejected_and_a_late_decision_is_only_a_note() -> None:
    task = play(PLAYER, HELLO, PAY, later(hours=23))
    assert task.state.waiting_for == "approval"
    task = play(PLAYER, HELLO, PAY, later(hours=25))
    assert [e.to for e in of(task, ApprovalMoved)] == ["expired"]
    assert isinstance(task.wants, AskModel)
    call = of(task, ApprovalAsked)[0].call
    late = play(PLAYER, HELLO, PAY, later(hours=25), ApprovalMoved(call=call, to="approved", by="ann"))
    assert isinstance(late.log[-1].event, Arrived) and late.log[-1].event.source == "late"
    assert isinstance(late.wants, AskModel)


@pytest.mark.parametrize("call", [1, 99])
def test_a_decision_about_another_call_changes_nothing(call: int) -> None:
    task = play(PLAYER, HELLO, PAY, ApprovalMoved(call=call, to="approved", by="ann"))
    assert task.state.waiting_for == "approval"


def test_a_second_decision_changes_nothing() -> None:
    call = of(play(PLAYER, HELLO, PAY), ApprovalAsked)[0].call
    task = play(PLAYER, HELLO, PAY, approves(), ApprovalMoved(call=call, to="rejected", by="bob"))
    assert isinstance(task.wants, RunEffect)


@pytest.mark.parametrize("call", [PAY, KEEP])
def test_a_stale_approval_is_asked_anew_at_most_three_times(call: Any) -> None:
    task = play(PLAYER, HELLO, call, approves())
    moves: list[Any] = [call, approves()]
    for asked in (2, 3):
        moves.append(stale(task))
        task = play(PLAYER, HELLO, *moves)
        assert task.state.waiting_for == "approval" and len(of(task, ApprovalAsked)) == asked
        moves.append(approves())
        task = play(PLAYER, HELLO, *moves)
        assert isinstance(task.wants, RunEffect | RunWrite)
    task = play(PLAYER, HELLO, *moves, stale(task))
    assert "asked 3 times" in of(task, PolicyDenied)[0].why
    assert task.state.call is None and isinstance(task.wants, AskModel)


def test_a_rule_that_turned_stricter_takes_an_unasked_call_back_to_a_person() -> None:
    task = play(PLAYER, HELLO, Pay(rule="auto", text="1"))
    assert isinstance(task.wants, RunEffect)
    task = play(PLAYER, HELLO, Pay(rule="auto", text="1"), stale(task))
    assert task.state.waiting_for == "approval"
    assert isinstance(play(PLAYER, HELLO, Pay(rule="auto", text="1"), stale(task), approves()).wants, RunEffect)


def test_cancel_supersedes_what_is_asked() -> None:
    task = play(PLAYER, HELLO, PAY, CancelAsked(by="ann"))
    assert [e.to for e in of(task, ApprovalMoved)] == ["superseded"]
    assert task.status == "cancelled"


def test_a_message_while_a_person_is_asked_leaves_the_question_open() -> None:
    task = play(PLAYER, HELLO, PAY, Arrived(kind="message", source="s", key="k", payload={"text": "hurry"}))
    assert task.state.waiting_for == "approval" and task.waiting == PAY


class Drop(Write[None], needs={DESTRUCTIVE}):
    """Drop a table. Use never."""

    def approval(self, task: Task) -> Verdict:
        """Too trusting."""
        return AUTO

    def dry_run(self, ctx: Ctx) -> str:
        """What would be lost."""
        return "everything"

    def write(self, db: Any) -> None:
        """Never called here."""


class Hidden(Write[None]):
    """Do something. Use when it is offered."""

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Never."""
        return False

    def write(self, db: Any) -> None:
        """Never called here."""


def test_a_destructive_tool_is_asked_about_whatever_its_rule_says() -> None:
    task = play(Agent(name="a", tools=[Drop]), HELLO, Drop())
    assert task.state.waiting_for == "approval"
    assert of(task, ApprovalAsked)[0].risk == "high"


class DropSlowly(Drop, needs={DESTRUCTIVE}):
    """Drop a table after asking softly. Use never."""

    def approval(self, task: Task) -> Verdict:
        """Too soft."""
        return ask("ann@example.com", "it is only a table", risk="low")


def test_a_destructive_call_is_of_high_risk_whatever_its_rule_says() -> None:
    asked = of(play(Agent(name="a", tools=[DropSlowly]), HELLO, DropSlowly()), ApprovalAsked)[0]
    assert (asked.risk, asked.target, asked.reason) == ("high", "ann@example.com", "it is only a table")


def test_a_tool_that_is_not_offered_is_denied() -> None:
    task = play(Agent(name="a", tools=[Hidden]), HELLO, Hidden())
    assert "not offered now" in of(task, PolicyDenied)[0].why


class Wire(Write[None]):
    """Wire money. Use once."""

    amount: int

    def approval(self, task: Task) -> Verdict:
        """Always."""
        return ask("#people")

    def write(self, db: Any) -> None:
        """Never called here."""


def renamed(upgrade: Any) -> Agent:
    """The agent of tomorrow, whose tool is called `transfer` and reads old arguments by `upgrade`."""

    class Transfer(Wire, was=("wire",)):
        """Wire money. Use once."""

        @classmethod
        def upgrade(cls, old: dict[str, Any]) -> dict[str, Any]:
            return dict(upgrade(old))

    return Agent(name="a", tools=[Transfer])


def next_want(agent: Agent, task: Task, *events: Event) -> Any:
    moved = reduce(agent, task, events, task.state.at or EPOCH)
    return moved.wants, [type(r.event).__name__ for r in moved.events], moved.state


def test_an_approval_outlives_a_renaming_of_its_tool() -> None:
    approved = play(Agent(name="a", tools=[Wire]), HELLO, Wire(amount=5), approves())
    assert next_want(renamed(lambda old: old), approved)[0] == RunWrite()


def test_an_upgrade_that_changes_the_arguments_makes_an_approval_stale_and_the_new_ones_are_asked() -> None:
    approved = play(Agent(name="a", tools=[Wire]), HELLO, Wire(amount=5), approves())
    tomorrow = renamed(lambda old: {"amount": 500} if old["amount"] == 5 else old)
    wants, events, state = next_want(tomorrow, approved)
    assert (wants, events) == (Rest(), ["ApprovalMoved", "ApprovalAsked"])
    assert state.call.args == '{"amount":500}'
    again = Task(state, read=approved.read)
    wants, events, state = next_want(tomorrow, again, ApprovalMoved(call=state.call.seq, to="approved", by="ann"))
    assert (wants, events) == (RunWrite(), ["ApprovalMoved"])


def test_a_rule_that_denies_when_it_is_asked_again_closes_the_call() -> None:
    seen = []

    class Fickle(Wire):
        """Wire money. Use once."""

        def approval(self, task: Task) -> Verdict:
            seen.append(task.state.seq)
            return ask() if len(seen) == 1 else deny("changed my mind")

    task = play(Agent(name="a", tools=[Fickle]), HELLO, Fickle(amount=1))
    assert of(task, PolicyDenied)[0].why == "changed my mind" and task.state.call is None


def test_what_an_approval_is_bound_to_changes_with_each_part() -> None:
    parts = ("task", 3, "pay", '{"a":1}', '{"kind":"ask"}')
    others = [("task2", *parts[1:]), ("task", 4, *parts[2:]), (*parts[:2], "pay2", *parts[3:]),
              (*parts[:3], '{"a":2}', parts[4]), (*parts[:4], '{"kind":"auto"}')]  # fmt: skip
    digests = {call_digest(*p) for p in (parts, *others)} | {call_digest(*parts, preview="x")}
    assert len(digests) == 7


def test_an_approved_effect_is_done_once() -> None:
    task = play(player(), HELLO, PAY, approves(), gives(PAY, PAID))
    assert task.count(Pay) == 1 and isinstance(task.wants, AskModel)
    assert State.model_validate_json(task.state.model_dump_json()) == task.state


class Peek(Read[str]):
    """Look at something that is not for everybody. Use when it is needed."""

    def approval(self, task: Task) -> Verdict:
        """Somebody may say no."""
        return ask("ann@example.com", at_expiry="allow")

    def run(self, ctx: Ctx) -> str:
        """Never called here."""
        return ""


def test_a_read_may_run_because_nobody_decided_and_is_still_no_approval() -> None:
    task = play(Agent(name="a", tools=[Peek]), HELLO, Peek(), later(hours=25))
    assert [(e.to, e.then) for e in of(task, ApprovalMoved)][-1] == ("expired", "allow")
    assert isinstance(task.wants, RunRead)


def test_a_read_that_was_rejected_does_not_run_when_the_time_is_over() -> None:
    task = play(Agent(name="a", tools=[Peek]), HELLO, Peek(), rejects(), later(hours=25))
    assert task.state.call is None and isinstance(task.wants, AskModel)


def test_what_may_run_because_nobody_decided_is_a_read() -> None:
    class Careless(Wire):
        """Wire money. Use once."""

        def approval(self, task: Task) -> Verdict:
            return ask("ann@example.com", at_expiry="allow")

    task = play(Agent(name="a", tools=[Careless]), HELLO, Careless(amount=1))
    assert "may not run because nobody decided" in of(task, PolicyDenied)[0].why


def test_a_reminder_changes_nothing_but_its_time() -> None:
    task = play(PLAYER, HELLO, PAY, later(hours=5))
    assert [e.to for e in of(task, ApprovalMoved)] == ["reminded"]
    assert (task.state.waiting_for, task.waiting) == ("approval", PAY)
    assert [name for name, _ in task.state.deadlines()] == ["asked"]


def reviewed(task: Task, outcome: Any) -> Verdict:
    return deny("swearing") if "damn" in outcome.text else ask("ann@example.com", "read it", risk="low")


REVIEWED = Agent(name="a", tools=[Wire], review=reviewed, success=[lambda t: None if t.did(Wire) else "wire first"])


def test_a_result_is_delivered_after_somebody_has_reviewed_it() -> None:
    agent = replace(REVIEWED, success=[])
    waits = play(agent, HELLO, Done(outcome=Text(text="fine")))
    assert waits.state.waiting_for == "approval" and not of(waits, Finished)
    assert of(waits, ApprovalAsked)[0].target == "ann@example.com"
    done = play(agent, HELLO, Done(outcome=Text(text="fine")), approves())
    assert done.status == "done" and done.outcome == Text(text="fine")
    again = play(agent, HELLO, Done(outcome=Text(text="fine")), rejects())
    assert isinstance(again.wants, AskModel) and not of(again, Finished)
    refused = play(agent, HELLO, Done(outcome=Text(text="damn")))
    assert of(refused, PolicyDenied)[0].why == "swearing"


def test_nobody_reviews_what_is_not_finished() -> None:
    task = play(REVIEWED, HELLO, Done(outcome=Text(text="fine")))
    assert of(task, DoneRefused)[0].why == "wire first" and not of(task, ApprovalAsked)


def test_an_edited_result_is_what_is_delivered() -> None:
    agent = replace(REVIEWED, success=[])
    edited = ApprovalMoved(call=3, to="approved_with_edits", by="ann", args='{"outcome":{"text":"better"}}', digest="d")
    done = play(agent, HELLO, Done(outcome=Text(text="fine")), edited)
    assert done.outcome == Text(text="better")


def test_a_rule_that_asks_others_than_were_asked_makes_an_approval_stale() -> None:
    first, then = ask("ann@example.com", "a"), ask("ann@example.com", "b")
    assert first.rule == then.rule, "wording is no part of it"
    others = [ask("ben@example.com"), ask("ann@example.com", risk="high"), ask("ann@example.com", four_eyes=True),
              ask("ann@example.com, ben@example.com", quorum=2), ask("ann@example.com", escalate_to="ben@example.com"),
              AUTO]  # fmt: skip
    assert len({verdict.rule for verdict in (first, *others)}) == 7


class PeekInto(Read[str]):
    """Look into a drawer. Use when it is needed."""

    drawer: int

    def approval(self, task: Task) -> Verdict:
        """Never the last one; the second is somebody else's."""
        return deny("private") if self.drawer == 3 else ask(f"{('ann', 'ben')[self.drawer - 1]}@example.com")

    def run(self, ctx: Ctx) -> str:
        """Never called here."""
        return ""


@pytest.mark.parametrize(("drawer", "comes_to"), [(1, ["approved_with_edits"]), (2, ["approved_with_edits", "stale"])])
def test_an_edited_read_runs_when_its_rule_asks_the_same_people(drawer: int, comes_to: list[str]) -> None:
    asked = play(Agent(name="a", tools=[PeekInto]), HELLO, PeekInto(drawer=1))
    assert asked.state.call is not None
    edited = ApprovalMoved(
        call=asked.state.call.seq, to="approved_with_edits", by="ann", args=f'{{"drawer":{drawer}}}', digest="d"
    )
    task = play(Agent(name="a", tools=[PeekInto]), HELLO, PeekInto(drawer=1), edited)
    assert [e.to for e in of(task, ApprovalMoved)] == comes_to
    assert isinstance(task.wants, RunRead) == (comes_to[-1] != "stale")
    private = edited.model_copy(update={"args": '{"drawer":3}'})
    denied = play(Agent(name="a", tools=[PeekInto]), HELLO, PeekInto(drawer=1), private)
    assert of(denied, PolicyDenied)[0].why == "private" and denied.state.call is None
