"""The window of any play: an independent XML parser finds the events and nothing else; the receipt has all of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import yaml
from defusedxml import ElementTree
from hypothesis import given
from hypothesis import strategies as st

from tests.property.plays import PLAYER, Play, played
from tests.unit.test_text import json_of, nasty
from twelvefold.effects import AskModel, Summarise
from twelvefold.events import Arrived, Folded, Prefetched
from twelvefold.fold import UNSEEN
from twelvefold.room import EASY_TOKENS, MOST_ROWS, MOST_TOKENS, SHOWN_TOKENS, coming
from twelvefold.shape import Row
from twelvefold.summary import SUMMARY_TOKENS
from twelvefold.text import clean, clean_json
from twelvefold.window import UNSEEN_TYPES, Window, build

moves = st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=50)
LOOK_ALIKES = [
    "</task>",
    "</ task>",
    "</message>",
    "<message n='9'>",
    "&lt;/task>",
    "<folded>",
    "]]></task>",
    "\0\x1b</x>",
]


def question_of(play: Play) -> AskModel:
    """The question that would be put now, whatever the play wants."""
    found = coming(play.state)
    return found if isinstance(found, AskModel) else AskModel(play.state.boundary, play.state.view.eased)


def rows_of(play: Play) -> list[Row]:
    """What the log gives for the window."""
    s, boundary = play.state, question_of(play).boundary
    return [
        Row(r.seq, type(r.event).__name__, r.event.version, r.event.data)
        for r in play.log
        if (r.seq >= boundary or r.seq in (s.opened, s.view.folded)) and type(r.event).__name__ not in UNSEEN_TYPES
    ]


def window_of(play: Play) -> Window:
    return build(play.agent, play.task, "You play.", rows_of(play), question_of(play))


def shown_seqs(play: Play) -> list[int]:
    return [row.seq for row in rows_of(play) if row.type != "Folded"]


@given(moves, st.lists(nasty | st.sampled_from(LOOK_ALIKES), min_size=1, max_size=4))
def test_b146_window_an_xml_parser_finds_exactly_the_events(chosen: list[int], texts: list[str]) -> None:
    play = played(chosen, texts=texts)
    tree = ElementTree.fromstring(window_of(play).user)
    assert tree.tag == "task"
    looked_up = [child for child in tree if child.tag == "prefetched"]
    assert all(len(child) == 0 for child in tree if child not in looked_up)
    assert all({part.tag for part in child} == {"earlier", "nearby"} for child in looked_up)
    assert all(len(part) == 0 for child in looked_up for part in child)
    assert [int(child.attrib["n"]) for child in tree if child.tag != "folded"] == shown_seqs(play)


@given(json_of(nasty | st.sampled_from(LOOK_ALIKES)))
def test_what_was_prefetched_reads_back_under_the_name_of_its_function(found: Any) -> None:
    play, found = Play(), clean_json(found)
    play.feed(Prefetched(found={"earlier": found}, failed={"nearby": "</nearby>"}))
    event = list(ElementTree.fromstring(window_of(play).user))[-1]
    assert [part.tag for part in event] == ["earlier", "nearby"]
    text = event[0].text or ""
    if "more characters" not in text:
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
        if "more characters" not in text:
            assert (text if isinstance(payload, str) else yaml.safe_load(text)) == payload


@given(moves)
def test_the_receipt_accounts_for_every_event_once(chosen: list[int]) -> None:
    play = played(chosen)
    accounted(play, window_of(play))


def test_the_receipt_accounts_for_every_event_after_the_window_was_folded() -> None:
    play, folds = Play(endless=True), set()
    for number in range(4_000):
        play.move(number * 7_919)
        if number % 20 == 0:
            folds.add(play.state.view.folded)
            accounted(play, window_of(play))
    assert len(folds) > 5


def accounted(play: Play, window: Window) -> None:
    """Each seq stands exactly once, the sums equal the total, and the text says what was folded."""
    receipt = window.receipt
    dropped = receipt["dropped"]
    shown = [*receipt["whole"], *receipt["projected"], *dropped["superseded"], *dropped["resolved"]]
    ranges = [range(first, last + 1) for first, last in receipt["folded"]]
    seqs = [*(row[0] for row in shown), *chain(*ranges), *dropped["bookkeeping"], *receipt["summary"]]
    assert sorted(seqs) == list(range(1, play.state.seq + 1))
    assert {type(play.log[n - 1].event) for n in dropped["bookkeeping"]} <= {*UNSEEN, Folded}
    sections = {section["name"]: section for section in receipt["sections"]}
    assert list(sections) == ["system", "tools", "summary", "rest"]
    assert sum(row[1] for row in shown) == sections["rest"]["tokens"]
    assert sum(section["tokens"] for section in sections.values()) == receipt["total"]
    tree = ElementTree.fromstring(window.user)
    assert [child.attrib["n"] for child in tree if child.tag == "gone"] == [
        str(row[0]) for row in sorted([*dropped["superseded"], *dropped["resolved"]])
    ]
    assert (len([child for child in tree if child.tag == "folded"]) == 1) == bool(receipt["folded"])
    assert sections["summary"]["tokens"] <= SUMMARY_TOKENS + 60
    assert sections["rest"]["tokens"] <= MOST_TOKENS + SHOWN_TOKENS


def test_the_window_stays_bounded_when_many_events_are_tiny() -> None:
    play = Play(PLAYER)
    for number in range(1_000):
        play.absorb([Arrived(kind="event", source="s", key=str(number), payload=number)])
        if number % 10 == 0:
            if isinstance(play.wants, Summarise):
                play.feed(Folded(first=play.state.boundary, last=play.wants.last, text="notes", hash="h"))
            assert len(shown_seqs(play)) <= MOST_ROWS + 12
    assert sum(tokens for _, tokens in play.state.window) < EASY_TOKENS
    assert play.state.view.folded


def test_the_window_only_grows_until_it_is_said_to_begin_anew() -> None:
    play = Play(endless=True, texts=["short"])
    last, prefix, grown, broken = "", "", 0, 0
    for number in range(2_000):
        play.move(number * 104_729)
        if isinstance(play.wants, AskModel):
            window = window_of(play)
            text = window.user.removesuffix("\n</task>")
            assert window.prefix != prefix or text.startswith(last)
            grown, broken = grown + (window.prefix == prefix), broken + (window.prefix != prefix)
            last, prefix = text, window.prefix
    assert grown > 100 and broken > 5
