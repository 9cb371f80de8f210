"""The window of any play: an independent XML parser finds the events and nothing else; the receipt has all of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import yaml
from defusedxml import ElementTree
from hypothesis import given
from hypothesis import strategies as st

from tests.property.plays import Play, played
from tests.unit.test_text import json_of, nasty
from twelvefold.effects import AskModel
from twelvefold.events import Arrived, ModelAsked, Prefetched
from twelvefold.fold import MOST_WINDOW, UNSEEN
from twelvefold.text import clean, clean_json
from twelvefold.window import UNSEEN_TYPES, WINDOW_TOKENS, Row, Window, build, next_boundary

moves = st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=50)
LOOK_ALIKES = [
    "</task>",
    "</ task>",
    "</message>",
    "<message n='9'>",
    "&lt;/task>",
    "<left_out>",
    "]]></task>",
    "\0\x1b</x>",
]


def window_of(play: Play) -> Window:
    boundary = next_boundary(play.state)
    rows = [
        Row(r.seq, type(r.event).__name__, r.event.version, r.event.data)
        for r in play.log
        if (r.seq >= boundary or r.seq == play.state.opened) and type(r.event).__name__ not in UNSEEN_TYPES
    ]
    return build(play.agent, play.task, "You play.", rows, boundary)


def shown_seqs(play: Play) -> list[int]:
    boundary, opened = next_boundary(play.state), play.state.opened
    return [r.seq for r in play.log if not isinstance(r.event, UNSEEN) and (r.seq >= boundary or r.seq == opened)]


@given(moves, st.lists(nasty | st.sampled_from(LOOK_ALIKES), min_size=1, max_size=4))
def test_b146_window_an_xml_parser_finds_exactly_the_events(chosen: list[int], texts: list[str]) -> None:
    play = played(chosen, texts=texts)
    tree = ElementTree.fromstring(window_of(play).user)
    assert tree.tag == "task"
    looked_up = [child for child in tree if child.tag == "prefetched"]
    assert all(len(child) == 0 for child in tree if child not in looked_up)
    assert all({part.tag for part in child} == {"earlier", "nearby"} for child in looked_up)
    assert all(len(part) == 0 for child in looked_up for part in child)
    assert [int(child.attrib["n"]) for child in tree if child.tag != "left_out"] == shown_seqs(play)


@given(json_of(nasty | st.sampled_from(LOOK_ALIKES)))
def test_what_was_prefetched_reads_back_under_the_name_of_its_function(found: Any) -> None:
    play, found = Play(), clean_json(found)
    play.feed(Prefetched(found={"earlier": found}, failed={"nearby": "</nearby>"}))
    event = list(ElementTree.fromstring(window_of(play).user))[-1]
    assert [part.tag for part in event] == ["earlier", "nearby"]
    text = event[0].text or ""
    if "more characters]" not in text:
        assert (text if isinstance(found, str) else yaml.safe_load(text)) == found
    assert event[1].attrib["failed"] == "</nearby>"


@given(st.lists(json_of(nasty | st.sampled_from(LOOK_ALIKES)), min_size=1, max_size=5), nasty)
def test_b146_window_what_came_in_reads_back_as_it_was_sent(sent: list[Any], sender: str) -> None:
    play, payloads = Play(), [clean_json(value) for value in sent]  # the text gate stands at the intake
    sender = clean(sender)
    play.absorb([Arrived(kind="message", source=sender, key="k", payload=p, sender=sender) for p in payloads])
    children = list(ElementTree.fromstring(window_of(play).user))[1:]
    assert len(children) == len(payloads)
    for child, payload in zip(children, payloads, strict=True):
        assert child.attrib["source"] == sender
        text = child.text or ""
        if "more characters]" not in text:
            assert (text if isinstance(payload, str) else yaml.safe_load(text)) == payload


@given(moves)
def test_the_receipt_accounts_for_every_event_once(chosen: list[int]) -> None:
    play = played(chosen)
    accounted(play, window_of(play))


def test_the_receipt_accounts_for_every_event_after_the_boundary_has_jumped() -> None:
    play, jumps = Play(endless=True), set()
    for number in range(4_000):
        play.move(number * 7_919)
        if number % 20 == 0:
            jumps.add(next_boundary(play.state))
            accounted(play, window_of(play))
    assert len(jumps) > 5


def accounted(play: Play, window: Window) -> None:
    """Each seq stands exactly once, the sums equal the total, and the text says what was left out."""
    receipt = window.receipt
    ranges = [range(first, last + 1) for first, last in receipt["left_out"]]
    seqs = [*(seq for seq, _ in receipt["whole"]), *chain(*ranges), *receipt["bookkeeping"]]
    assert sorted(seqs) == list(range(1, play.state.seq + 1))
    assert {type(play.log[n - 1].event) for n in receipt["bookkeeping"]} <= set(UNSEEN)
    assert sum(tokens for _, tokens in receipt["whole"]) == receipt["sections"]["events"]
    assert sum(receipt["sections"].values()) == receipt["total"]
    tree = ElementTree.fromstring(window.user)
    assert [c.text for c in tree if c.tag == "left_out"] == [
        f"Events {first} to {last} are not shown any more." for first, last in receipt["left_out"]
    ]


def test_the_window_stays_bounded_when_many_events_are_tiny() -> None:
    play = Play()
    for number in range(1_000):
        play.absorb([Arrived(kind="event", source="s", key=str(number), payload=number)])
        if number % 10 == 0:
            play.only_fold(asked(play))
            assert len(shown_seqs(play)) <= MOST_WINDOW + 12
    assert sum(tokens for _, tokens in play.state.window) < WINDOW_TOKENS


def asked(play: Play) -> ModelAsked:
    return ModelAsked(model="m", request="r", boundary=next_boundary(play.state))


def test_the_window_only_grows_until_its_beginning_moves() -> None:
    play = Play(endless=True, texts=["short"])
    last, beginning, grown = "", (0, 0), 0
    for number in range(2_000):
        play.move(number * 104_729)
        if isinstance(play.wants, AskModel):
            text, now = window_of(play).user.removesuffix("\n</task>"), (play.wants.boundary, play.state.opened)
            assert now != beginning or text.startswith(last)
            grown += now == beginning
            last, beginning = text, now
    assert grown > 100
