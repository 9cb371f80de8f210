"""What a model may answer: one call, or several that read; everything else comes back as a lesson."""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.plays import PLAYER, Keep, Look
from twelvefold.errors import Rejection
from twelvefold.ports import ModelReply, ProposedCall
from twelvefold.replies import read_reply

LOOK = ProposedCall("look", '{"topic": "milk"}')
KEEP = ProposedCall("keep", '{"rule": "auto", "text": "milk"}')


def calls(*proposed: ProposedCall, **rest: Any) -> ModelReply:
    return ModelReply(calls=proposed, **rest)


LESSONS = [
    ("prose", ModelReply(text="I would rather talk."), "exactly one tool call and no prose"),
    ("prose", ModelReply(text="x" * 10_000), "more characters]"),
    ("empty", ModelReply(), "The reply was empty"),
    ("empty", ModelReply(text=" \n"), "exactly one tool call"),
    ("refusal", ModelReply(refusal="I cannot."), "call nothing_to_do"),
    ("refusal", calls(LOOK, finish="content_filter"), "withheld by a content filter"),
    ("cut_off", calls(LOOK, finish="length"), "Send a shorter call"),
    (
        "unknown_tool",
        calls(ProposedCall("delete_all", "{}")),
        "Choose one of: ask_human, delegate, done, explain, keep",
    ),
    ("arguments", calls(ProposedCall("look", "{")), "Send one JSON object"),
    ("arguments", calls(ProposedCall("look", '{"topic": NaN}')), "NaN is not JSON"),
    ("arguments", calls(ProposedCall("look", '{"topic":"a","topic":"b"}')), "stands twice"),
    ("arguments", calls(ProposedCall("done", '{"outcome": "kept"}')), "outcome: Input should be"),
    ("arguments", calls(ProposedCall("delegate", '{"agent": "stranger", "request": "x"}')), "'helper'"),
    ("arguments", calls(ProposedCall("wait", '{"why": "x", "seconds": null, "event": null}')), "seconds=3600"),
    ("several", calls(KEEP, LOOK), "The first was keep("),
    ("several", calls(LOOK, KEEP, KEEP), "3 calls at once; only calls that read may come together"),
]


@pytest.mark.parametrize(("kind", "reply", "words"), LESSONS, ids=[f"{k}-{w[:20]}" for k, _, w in LESSONS])
def test_an_unusable_reply_teaches(kind: str, reply: ModelReply, words: str) -> None:
    with pytest.raises(Rejection) as rejected:
        read_reply(PLAYER, reply)
    assert rejected.value.kind == kind
    assert words in str(rejected.value)
    assert len(str(rejected.value)) < 1_000


def test_one_call_is_read() -> None:
    assert read_reply(PLAYER, calls(KEEP, text="Let me keep that.")) == [Keep(rule="auto", text="milk")]


def test_several_reads_are_taken_in_order() -> None:
    eggs = ProposedCall("look", '{"topic": "eggs"}')
    assert read_reply(PLAYER, calls(LOOK, eggs)) == [Look(topic="milk"), Look(topic="eggs")]


def test_what_nobody_can_see_is_gone_from_the_arguments() -> None:
    hidden = ProposedCall("look", '{"topic": "mi\\u200blk\\u202e\\ud800"}')
    assert read_reply(PLAYER, calls(hidden)) == [Look(topic="milk\ufffd")]
