"""Prefetch in the core: once a run, before the first decision, and readable by the agent's code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.plays import LOOKER, Look, earlier, nearby, player
from twelvefold import DeclarationError, Done, Text
from twelvefold.effects import AskModel, Prefetch
from twelvefold.events import Prefetched
from twelvefold.room import SHOWN_TOKENS
from twelvefold.shape import Row, rendered
from twelvefold.testing import gives, play, says
from twelvefold.tokens import tokens_of

HELLO = {"text": "hello"}
FOUND = Prefetched(found={"earlier": ["a"]}, failed={"nearby": "took longer than 5 s"}, ms=40)
LOOKED = gives(Look(topic="x"), ["x"])


def test_nothing_is_decided_before_the_look() -> None:
    task = play(LOOKER, HELLO)
    assert isinstance(task.wants, Prefetch)
    assert task.prefetched(earlier) is None
    with pytest.raises(AssertionError, match="the task wants Prefetch"):
        play(LOOKER, HELLO, Look(topic="x"))


def test_what_was_found_is_there_for_code_and_what_was_not_is_none() -> None:
    task = play(LOOKER, HELLO, FOUND)
    assert isinstance(task.wants, AskModel)
    assert (task.prefetched(earlier), task.prefetched(nearby)) == (["a"], None)
    assert task.state.used.active_ms == 40 and task.decisions == 0


def test_code_that_speaks_first_speaks_after_the_look() -> None:
    seen: list[Any] = []

    def steer(task: Any) -> Any:
        seen.append(task.prefetched(earlier))
        return Look(topic="x")

    play(player(prefetch=[earlier], steer=steer), HELLO, Prefetched(found={"earlier": [1]}))
    assert seen == [[1]]


def test_a_new_run_looks_again() -> None:
    ended: list[Any] = [FOUND, LOOKED, Done(outcome=Text(text="ok"))]
    task = play(LOOKER, HELLO, *ended, says("and now?"))
    assert isinstance(task.wants, Prefetch) and task.prefetched(earlier) is None
    again = play(LOOKER, HELLO, *ended, says("and now?"), Prefetched(found={"earlier": ["b"]}))
    assert again.prefetched(earlier) == ["b"] and isinstance(again.wants, AskModel)


def test_functions_whose_names_are_no_tags_are_refused() -> None:
    with pytest.raises(DeclarationError, match="def the_order"):
        player(prefetch=[lambda ctx: 1])
    with pytest.raises(DeclarationError, match="two prefetch functions"):
        player(prefetch=[earlier, earlier])


def test_what_was_found_shares_what_one_event_may_show() -> None:
    found: dict[str, Any] = {"earlier": {"a": "x"}, "nearby": {"b": "word " * 20_000}}
    text = rendered(Row(2, "Prefetched", 1, Prefetched(found=found).data)).text
    assert "more characters" in text and "<earlier>a: x" in text
    assert tokens_of(text) < SHOWN_TOKENS
