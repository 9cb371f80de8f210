"""What holds in every play: the fold is a fold, nothing runs that was not allowed, nobody spends what is not there."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property import plays
from tests.property.plays import PLAYER, Play, played
from twelvefold import State, decide, fold
from twelvefold.canonical import call_digest, canonical
from twelvefold.decide import budget_of
from twelvefold.effects import Rest, RunEffect, RunWrite
from twelvefold.events import (
    TYPES,
    ApprovalAsked,
    ApprovalMoved,
    Decided,
    ModelAsked,
    Previewed,
    Returned,
    Started,
)
from twelvefold.fold import fold_all
from twelvefold.record import Recorded, event_hash, revive
from twelvefold.state import OpenCall, Status, WaitingFor
from twelvefold.testing import TASK_ID, replay

moves = st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=50)


def numbers(seed: int, count: int) -> Iterable[int]:
    dice = Random(seed)
    return (dice.randrange(2**32) for _ in range(count))


@given(moves, st.integers(0, 10_000))
def test_folding_in_two_parts_is_folding_at_once(chosen: list[int], cut: int) -> None:
    log = played(chosen).log
    cut %= len(log)
    start = State(id=TASK_ID, tenant="test")
    assert fold_all(fold_all(start, log[:cut]), log[cut:]) == fold_all(start, log)


@given(moves)
def test_the_log_alone_gives_the_state_back(chosen: list[int]) -> None:
    play = played(chosen)
    stored = [
        Recorded(r.seq, r.at, revive(type(r.event).__name__, r.event.version, r.event.model_dump(mode="json")))
        for r in play.log
    ]
    assert replay(stored) == play.state


@given(moves)
def test_the_state_comes_back_from_its_stored_form(chosen: list[int]) -> None:
    state = played(chosen).state
    assert State.model_validate_json(state.model_dump_json()) == state
    assert State.model_validate_json(state.model_dump_json(exclude_defaults=True)) == state


@given(moves)
def test_the_same_moves_give_the_same_events_hashes_and_state(chosen: list[int]) -> None:
    first, second = played(chosen), played(chosen)
    assert first.state.model_dump_json() == second.state.model_dump_json()
    assert [(r.seq, r.at, r.event) for r in first.log] == [(r.seq, r.at, r.event) for r in second.log]
    assert hashes(first.log) == hashes(second.log)


def hashes(log: list[Recorded]) -> list[str]:
    return [event_hash(f"salt {r.seq}", r.event.data) for r in log]


class Ungated(AssertionError):
    """Something ran that nobody and no rule had allowed."""


def gate(log: list[Recorded]) -> None:  # noqa: C901 - one arm an event
    """Raise Ungated unless each Started and each Write's Returned was allowed, for this very call and digest."""
    decisions: dict[int, Decided] = {}
    allowed: dict[int, str] = {}
    asked: dict[int, str] = {}
    previews: dict[int, str] = {}
    for recorded in log:
        match recorded.event:
            case Decided() as event:
                decisions[recorded.seq] = event
                if event.verdict == "auto":
                    allowed[recorded.seq] = event.digest
            case Previewed() as event:
                previews[event.call] = canonical(event.shown)
            case ApprovalAsked() as event:
                call, preview = decisions[event.call], previews.get(event.call, "")
                digest = call_digest(TASK_ID, event.call, call.tool, event.args or call.args, event.verdict, preview)
                assert digest == event.digest
                asked[event.call] = digest
                allowed.pop(event.call, None)
            case ApprovalMoved(call=seq, to=to):
                if to == "approved":
                    allowed[seq] = asked[seq]
                else:
                    allowed.pop(seq, None)
            case Started() as event:
                if not event.digest or allowed.get(event.call) != event.digest:
                    raise Ungated(f"{recorded.seq}: {event!r}")
            case Returned() as event:
                if decisions[event.call].kind in ("write", "effect") and event.call not in allowed:
                    raise Ungated(f"{recorded.seq}: {event!r}")


@given(moves)
def test_nothing_runs_without_an_auto_verdict_or_an_approval_of_this_digest(chosen: list[int]) -> None:
    gate(played(chosen).log)


def run_unapproved(agent: Any, task: Any, call: OpenCall, now: Any) -> Any:
    return RunEffect(attempt=1, key="k") if call.kind == "effect" else RunWrite()


def always_approved(**fields: Any) -> OpenCall:
    return OpenCall(**fields | {"phase": "approved"})


def begins_with_a_new_digest(**fields: Any) -> Started:
    return Started(**fields | {"digest": "another"})


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        (decide, "_verdict", run_unapproved),
        (fold, "OpenCall", always_approved),
        (plays, "Started", begins_with_a_new_digest),
    ],
)
def test_without_the_check_that_property_fails(
    module: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(Ungated):
        for seed in range(200):
            gate(played(numbers(seed, 40)).log)


@given(moves)
def test_an_effect_is_sent_again_only_with_its_key_and_only_where_the_tool_allows_it(chosen: list[int]) -> None:
    log = played(chosen).log
    first: dict[int, Started] = {}
    tools = {r.seq: r.event.tool for r in log if isinstance(r.event, Decided)}
    for event in (r.event for r in log if isinstance(r.event, Started)):
        begun = first.setdefault(event.call, event)
        assert event.key == begun.key
        assert event.attempt == 1 or (tools[event.call] == "pay_again" and event.attempt <= 3)


@given(moves)
def test_a_used_up_budget_lets_no_model_be_asked_and_no_decision_through(chosen: list[int]) -> None:
    state = State(id=TASK_ID, tenant="test")
    for recorded in played(chosen).log:
        event, paid = recorded.event, state.used
        if isinstance(event, ModelAsked):
            assert budget_of(PLAYER, state).exhausted(state.used) is None
        state = fold_all(state, [recorded])
        limit = budget_of(PLAYER, state)
        assert state.used.decisions <= limit.decisions
        if isinstance(event, ModelAsked):
            assert state.used.tokens <= limit.tokens + event.spent.tokens_in + event.spent.tokens_out
        elif state.used.tokens > paid.tokens:
            assert state.used.tokens <= limit.tokens, "a child was charged more than was left"
            assert state.used.usd <= limit.usd


@pytest.mark.parametrize("seed", range(2))
def test_the_state_stays_bounded_over_three_thousand_events(seed: int) -> None:
    play = Play(endless=True)
    for number in numbers(seed, 20_000):
        play.move(number)
        if len(play.log) >= 3_000:
            break
        if len(play.log) % 50 == 0:
            assert len(play.state.model_dump_json().encode()) < 16_384
    assert len(play.log) >= 3_000
    assert len(play.state.model_dump_json().encode()) < 16_384


@given(moves)
def test_a_task_wants_something_exactly_when_it_is_ready(chosen: list[int]) -> None:
    play = Play()
    for number in chosen:
        play.move(number)
        assert (play.state.status == "ready") is (not isinstance(play.wants, Rest)), (play.state, play.wants)


def test_every_type_of_event_is_produced_by_some_play() -> None:
    seen = {type(r.event).__name__ for seed in range(60) for r in played(numbers(seed, 50)).log}
    seen |= {type(r.event).__name__ for r in played(numbers(0, 600), endless=True).log}
    assert seen == set(TYPES)


def test_plays_come_to_every_status_and_every_wait() -> None:
    states = [fold_all(State(id=TASK_ID), log[: n + 1]) for log in logs(60) for n in range(0, len(log), 3)]
    assert {s.status for s in states} == set(get_args(Status))
    assert {s.waiting_for for s in states} == {None, *get_args(WaitingFor)}


def logs(count: int) -> list[list[Recorded]]:
    return [played(numbers(seed, 50)).log for seed in range(count)]
