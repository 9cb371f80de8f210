"""What Slack sends, read as values: who wrote what where, and what is not for us."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.adapter import Received
from triggers.problem import Problem
from triggers.slack import Challenge, Heard, button, click_key, clicks, command, escaped, event, readable

SAME = {"text": "a"}
LETTER = "0190a0a0-0000-5000-8000-000000000001"


def received(body: bytes) -> Received:
    return Received("slack", body, (), datetime(2026, 1, 1, tzinfo=UTC))


def said(inner: dict[str, Any], **outer: Any) -> Any:
    body = {
        "team_id": "T1", "api_app_id": "A1", "type": "event_callback", "event_id": "Ev1",
        "authorizations": [{"user_id": "UBOT"}],
        "event": {"type": "message", "user": "U1", "text": "hi", "ts": "1.1", "channel": "C1", **inner}, **outer,
    }  # fmt: skip
    return event(received(json.dumps(body).encode()))


def clicked(**payload: Any) -> Any:
    action = {"value": button(LETTER, "approve"), "block_id": "ap_01J", "action_id": "approve", "action_ts": "2.2"}
    body = {"type": "block_actions", "team": {"id": "T1"}, "user": {"id": "U1"}, "actions": [action], **payload}
    return list(clicks(received(urlencode({"payload": json.dumps(body)}).encode())))


def test_a_mention_and_a_message_to_us_alone_are_addressed_and_talk_among_people_is_not_kept() -> None:
    for inner in ({"type": "app_mention"}, {"channel_type": "im"}, {"text": "<@UBOT> hi"}):
        heard = said(inner)
        assert (heard.key, heard.user, heard.text, heard.conversation) == (
            "T1:C1:1.1",
            "T1/U1",
            "hi",
            "slack:T1:C1:1.1",
        )
        assert (heard.addressed, heard.reply, heard.change) == (True, False, "new")
    assert said({}) is None
    reply = said({"thread_ts": "1.0", "ts": "1.2"})
    assert (reply.key, reply.conversation, reply.addressed, reply.reply) == (
        "T1:C1:1.2",
        "slack:T1:C1:1.0",
        False,
        True,
    )


def test_b106_the_same_message_in_two_events_has_one_key() -> None:
    assert said({"type": "app_mention", "text": "<@UBOT> hi"}, event_id="Ev1") == said(
        {"text": "<@UBOT> hi"}, event_id="Ev2"
    )


@pytest.mark.parametrize(
    "inner",
    [
        {"bot_id": "B1"}, {"bot_id": "B1", "app_id": "A1"}, {"app_id": "A1"}, {"bot_profile": {"id": "B1"}},
        {"subtype": "bot_message"}, {"subtype": "channel_join"}, {"hidden": True}, {"type": "reaction_added"},
        {"subtype": "message_changed"}, {"subtype": "message_deleted"}, {"user": None}, {"ts": 7}, {"channel": None},
        {"subtype": "message_changed", "message": {"user": "U1", "ts": "1.1", "text": "a"}, "previous_message": SAME},
        {"subtype": "message_changed", "message": {"bot_id": "B1", "text": "a"}, "previous_message": {"text": "b"}},
        {"subtype": "message_deleted", "previous_message": {"bot_id": "B1", "ts": "1.1"}},
    ],
)  # fmt: skip
def test_b120_what_a_program_wrote_or_an_unfolded_link_changed_is_not_for_us(inner: dict[str, Any]) -> None:
    assert said({"channel_type": "im", **inner}) is None


def test_edits_and_deletions_name_the_message_they_change() -> None:
    before, after = {"user": "U1", "ts": "1.1", "text": "pay 100"}, {"user": "U1", "ts": "1.1", "text": "pay 1000"}
    changed = {"subtype": "message_changed", "ts": "9.9", "message": {**after, "edited": {"ts": "5.5"}}}
    heard = said({"channel_type": "im", **changed, "previous_message": before})
    assert (heard.key, heard.change, heard.text, heard.conversation) == (
        "T1:C1:1.1:edited:5.5", "edited", "pay 1000", "slack:T1:C1:1.1",
    )  # fmt: skip
    gone = said({"channel_type": "im", "subtype": "message_deleted", "previous_message": before, "ts": "9.9"})
    assert (gone.key, gone.change, gone.user) == ("T1:C1:1.1:deleted:", "deleted", "T1/U1")


def test_who_writes_from_another_workspace_is_named_by_that_one() -> None:
    for inner in ({"user_team": "T2"}, {"team": "T2"}, {"user_team": "T2", "team": "T1"}):
        assert said({"type": "app_mention", **inner}).user == "T2/U1"
    assert clicked(user={"id": "U1", "team_id": "T2"})[0].user == "T2/U1"


def test_markup_becomes_text_and_our_text_becomes_no_markup() -> None:
    text = "<@UBOT> see <https://a.example/x|the page> in <#C2|ops> with <@U7> &lt;b&gt; &amp; <!channel> <http://b.example>"
    assert (
        readable(text, {"UBOT"})
        == "see the page (https://a.example/x) in #ops with @U7 <b> & @channel http://b.example"
    )
    assert escaped("<!channel> & <@U1>") == "&lt;!channel&gt; &amp; &lt;@U1&gt;"


def test_a_click_has_the_published_name() -> None:
    expected = "defc3b4accd93d4b2bcffea15877a6f6e678f28a0f642703895f443939d1a002"
    assert click_key("T1", "1700000000.000100", "ap_01J", "approve", "1700000001.000200", "U1") == expected
    one, other = clicked(container={"message_ts": "1.1"}), clicked(container={"message_ts": "1.2"})
    assert one[0].key != other[0].key


def test_b125_whatever_an_interaction_looks_like_it_is_read_or_refused_and_nothing_breaks() -> None:
    (found,) = clicked(state={"values": {"c": {"note": {"type": "plain_text_input", "value": "because ü*+"}}}})
    assert (found.letter, found.choice, found.comment, found.user) == (LETTER, "approve", "because ü*+", "T1/U1")
    view = {
        "id": "V1",
        "private_metadata": button(LETTER, "reject"),
        "state": {"values": {"b": {"a": {"value": "no"}}}},
    }
    (form,) = clicked(type="view_submission", view=view, actions=None)
    assert (form.choice, form.comment, form.answer_to) == ("reject", "no", "")
    odd: list[Any] = [
        None,
        [],
        "x",
        [None],
        [{"value": 7}],
        [{"value": f"{LETTER}:pay"}],
        [{"value": "x:approve"}],
        {"a": 1},
    ]
    for actions in odd:
        assert clicked(actions=actions) == []
    assert clicked(user=None) == clicked(user="U1") == clicked(team=None) == []
    assert clicked(state={"values": {str(n): {"x": {"value": ""}} for n in range(2000)}})[0].comment == ""
    for body in (b"", b"payload=", b"payload=[]", b"payload=%7B", b"payload={}&payload={}", b"\xff", b"payload=%ff"):
        with pytest.raises(Problem) as refused:
            list(clicks(received(body)))
        assert refused.value.status == 400


def test_a_command_needs_who_where_and_what() -> None:
    fields = {
        "team_id": "T1",
        "user_id": "U1",
        "channel_id": "C1",
        "command": "/ship",
        "text": "pears",
        "trigger_id": "1.2",
    }
    found = command(received(urlencode(fields).encode()))
    assert found is not None
    assert (found.command, found.text, found.user, found.key) == ("/ship", "pears", "T1/U1", "T1:1.2")
    for name in ("team_id", "user_id", "command", "trigger_id"):
        assert command(received(urlencode({**fields, name: ""}).encode())) is None


def test_a_challenge_is_told_from_an_event() -> None:
    assert event(received(b'{"type":"url_verification","challenge":"3eZbrw1aB"}')) == Challenge("3eZbrw1aB")
    assert event(received(b'{"type":"app_rate_limited"}')) is None
    with pytest.raises(Problem):
        event(received(b"[]"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["text", "ts", "user", "id", "values", "value", "x"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(values, values, values)
def test_no_event_whatever_its_shape_breaks(first: Any, second: Any, third: Any) -> None:
    kinds = ("message_changed", "message_deleted", None)
    for kind in kinds:
        found = said(
            {"channel_type": "im", "subtype": kind, "message": first, "previous_message": second, "text": third}
        )
        assert found is None or isinstance(found, Heard)
    assert isinstance(clicked(state=first, view=second, container=third), list)
