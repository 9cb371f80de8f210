"""Events and states as they are stored: exact, frozen, and left alone where newer code wrote them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from twelvefold.canonical import canonical, plain, sha256
from twelvefold.errors import Unreadable
from twelvefold.events import TYPES, Arrived, Returned, Started
from twelvefold.fold import fold
from twelvefold.inbox import event_of
from twelvefold.record import Recorded, event_hash, hold, revive, unhold
from twelvefold.state import OpenCall, State, Tally, Task
from twelvefold.testing import EPOCH


def test_the_union_is_closed() -> None:
    assert sorted(TYPES) == [
        "ApprovalAsked", "ApprovalMoved", "Arrived", "Blocked", "CancelAsked", "ChildReturned", "ChildStarted",
        "Decided", "DoneRefused", "Doubted", "Failed", "Finished", "Folded", "LimitReached", "ModelAsked",
        "PolicyDenied", "Prefetched", "Previewed", "Quarantined", "Rejected", "Reopened", "Resumed", "Returned",
        "Settled", "Started", "Stuck", "Throttled", "Woke",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "data", "words"),
    [
        ("Dreamt", 1, {}, "newer than this code"),
        ("Returned", 2, {"call": 1}, "Deploy newer code; the task waits"),
        ("Returned", 1, {"call": 1, "mood": "good"}, "does not read: 1 field"),
        ("Returned", 1, {}, "does not read"),
    ],
)
def test_an_event_of_newer_code_is_left_to_it(name: str, version: int, data: Any, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        revive(name, version, data)


def test_an_arrival_of_newer_code_is_left_to_it() -> None:
    with pytest.raises(Unreadable, match="'telepathy' is newer"):
        event_of("telepathy", source="s", key="k", payload={}, sender=None, wait_key=None)


@pytest.mark.parametrize(
    ("kind", "payload", "type_name"),
    [
        ("message", {"text": "hi"}, "Arrived"),
        ("event", 5, "Arrived"),
        ("decision", {"call": 3, "to": "approved"}, "ApprovalMoved"),
        ("settlement", {"call": 3, "how": "not", "by": "ann"}, "Settled"),
        ("cancel", {"by": "ann"}, "CancelAsked"),
        ("resume", {"by": "ann", "verb": "retry"}, "Resumed"),
        ("child", {"child": "c", "run": 1, "status": "done"}, "ChildReturned"),
    ],
)
def test_each_kind_of_arrival_has_its_event(kind: str, payload: Any, type_name: str) -> None:
    event = event_of(kind, source="s", key="k", payload=payload, sender="ann", wait_key=None, cleaned=2)
    assert type(event).__name__ == type_name
    if isinstance(event, Arrived):
        assert (event.kind, event.payload, event.sender, event.cleaned) == (kind, payload, "ann", 2)


def test_default_values_are_left_out_of_the_data() -> None:
    assert Returned(call=1).data == '{"call":1}'
    assert Returned(call=1, result=False).data == '{"call":1,"result":false}'


def test_a_hash_stands_when_data_and_salt_are_gone() -> None:
    event = Arrived(kind="message", source="s", key="k", payload={"text": "my secret"})
    kept = event_hash("salt", event.data)
    assert kept == event_hash("salt", event.data) != event_hash("other", event.data)
    assert event_hash("", event.data) != kept, "without the salt nobody can guess the data and check the guess"


def test_a_copied_event_has_the_data_of_the_copy() -> None:
    event = Returned(call=1)
    assert event.data == '{"call":1}'
    assert event.model_copy(update={"call": 2}).data == '{"call":2}'


def test_what_is_held_comes_back_as_it_was() -> None:
    events = [Started(call=3, key="k", attempt=1, digest="d"), Returned(call=3, result={"a": ["1.50", None]}, ms=4)]
    assert unhold(json.loads(json.dumps(hold(events)))) == events
    assert unhold(None) == []


@pytest.mark.parametrize(
    "value", [0.1, [1, {"a": 2.0}], float("nan"), {1: 2}, {None: 1}, object(), b"x", {"a": {1, 2}}]
)
def test_canonical_refuses_what_has_no_one_form(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical(value)


def test_canonical_is_one_text_for_one_value() -> None:
    value = {
        "b": Decimal("1.00"),
        "a": [date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), True, None, ("x", 1)],
        "é": "",
    }
    text = '{"a":["2026-01-02","2026-01-02T00:00:00+00:00",true,null,["x",1]],"b":"1.00","é":""}'
    assert canonical(value) == canonical(dict(reversed(value.items()))) == text
    assert canonical(plain(value)) == text
    assert sha256("ab", "c") != sha256("a", "bc")


def test_b60_a_hash_survives_a_column_that_reorders_keys_and_spaces() -> None:
    event = Returned(call=1, result=plain({"b": Decimal("1.00"), "a": 2}))
    stored = event.data
    # what such a column gives back: other order, other spaces, the same strings and integers
    returned = json.dumps(dict(reversed(json.loads(stored).items())), indent=1)
    again = revive("Returned", 1, json.loads(returned))
    assert again.data == stored
    assert event_hash("salt", again.data) == event_hash("salt", stored)
    assert "1.00" in stored, "an amount keeps its digits as text"


def test_b60_the_last_of_two_equal_keys_never_reaches_a_hash() -> None:
    with pytest.raises(TypeError):
        canonical({"a": 1, 2: "a"})


def state() -> State:
    call = OpenCall(seq=2, tool="look", args="{}", kind="read")
    return State(id="t", tools=(Tally(tool="look"),), call=call, window=((1, 8),), fingerprints=("a",))


@pytest.mark.parametrize(
    "mutate",
    [
        lambda s: setattr(s, "seq", 5),
        lambda s: setattr(s.call, "phase", "approved"),
        lambda s: setattr(s.used, "tokens", 0),
        lambda s: setattr(s.tools[0], "count", 9),
        lambda s: s.window.__setitem__(0, (1, 1)),
        lambda s: s.fingerprints.append("b"),
        lambda s: setattr(Task(s), "state", State()),
        lambda s: delattr(s, "seq"),
    ],
)
def test_b56_the_state_is_frozen_to_its_leaves(mutate: Any) -> None:
    before = state()
    with pytest.raises((ValidationError, TypeError, AttributeError)):
        mutate(before)
    assert before == state()


def test_b56_an_event_and_its_place_are_frozen() -> None:
    recorded = Recorded(1, EPOCH, Returned(call=1))
    for target, name in ((recorded, "seq"), (recorded.event, "call")):
        with pytest.raises((ValidationError, AttributeError)):
            setattr(target, name, 7)


def test_b56_folding_makes_a_new_state_and_leaves_the_old() -> None:
    before = state()
    after = fold(before.model_copy(update={"seq": 0}), Recorded(1, EPOCH, Returned(call=2, result=1)))
    assert before == state() and after.tally("look").count == 1


def test_an_event_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="Event 3 does not follow event 0"):
        fold(State(), Recorded(3, EPOCH, Returned(call=2)))
