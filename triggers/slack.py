"""What Slack sends, as values: messages, edits and deletions, clicks and commands. Parsed once it is verified.

Who wrote is `TEAM/USER` here; whose name that is, and what comes of it, is for the edge to say. What is not for us is
None: what people say to each other in a channel is not kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, Literal
from urllib.parse import parse_qs

from .adapter import Received
from .body import parse
from .problem import Problem
from .source import at

MESSAGE = "message"
_PLAIN = (None, "thread_broadcast", "file_share")
_MARKUP = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_BUTTON = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(approve|reject|ask)")
_LONGEST_KEY = 255

Choice = Literal["approve", "reject", "ask"]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Slack asks whether this address is ours."""

    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A message to us or in a thread. `user` is `TEAM/USER`; `conversation` names the thread; `addressed`: it mentions
    us or was written to us alone; `reply`: it stands in a thread. The same message has the same `key` in every event.
    """

    key: str
    user: str
    text: str
    channel: str
    conversation: str
    addressed: bool
    reply: bool
    change: Literal["new", "edited", "deleted"] = "new"


@dataclass(frozen=True, slots=True)
class Clicked:
    """A button of one of our letters, or the form that one opened. `letter` and `choice` are what we wrote into it."""

    key: str
    user: str
    letter: str
    choice: Choice
    comment: str
    answer_to: str


@dataclass(frozen=True, slots=True)
class Commanded:
    """A slash command such as `/deploy`, with what stands behind it."""

    key: str
    user: str
    command: str
    text: str
    conversation: str


def escaped(text: str) -> str:
    """A text of ours so that nothing in it is markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def button(letter: str, choice: Choice) -> str:
    """The `value` of a button of a letter: its id, which tells nothing, and the choice."""
    return f"{letter}:{choice}"


def event(received: Received, app: str | None = None) -> Challenge | Heard | None:
    """What an event says; None when it is not for us. `app` is our own app's id. Raises Problem 400."""
    said = parse(received.body, received.header("content-type") or "application/json")
    if not isinstance(said, dict):
        raise Problem(400, "Not an event of Slack", "The body of an event of Slack is a JSON object.")
    if said.get("type") == "url_verification":
        return Challenge(_text(said.get("challenge")))
    inner = said.get("event")
    if said.get("type") != "event_callback" or not isinstance(inner, dict):
        return None
    if inner.get("type") not in (MESSAGE, "app_mention") or _of_a_program(inner, app or _text(said.get("api_app_id"))):
        return None
    match inner.get("subtype"):
        case "message_changed":
            return _changed(said, inner)
        case "message_deleted":
            return _deleted(said, inner)
        case kind if kind in _PLAIN and not inner.get("hidden"):
            return _heard(said, inner, inner)
    return None


def _heard(said: dict[str, Any], inner: dict[str, Any], message: dict[str, Any]) -> Heard | None:
    team, channel, ts = _text(said.get("team_id")), _text(inner.get("channel")), _text(message.get("ts"))
    user, thread = _text(message.get("user")), _text(message.get("thread_ts"))
    if not (team and channel and ts and user):
        return None
    text = _text(message.get("text"))
    ours = [_text(each.get("user_id")) for each in said.get("authorizations") or () if isinstance(each, dict)]
    mentioned = inner.get("type") == "app_mention" or any(f"<@{bot}>" in text for bot in ours if bot)
    direct = inner.get("channel_type") == "im"
    home = _text(message.get("user_team")) or _text(message.get("team")) or team
    heard = Heard(
        key=f"{team}:{channel}:{ts}", user=f"{home}/{user}", text=readable(text, {bot for bot in ours if bot}),
        channel=channel, conversation=f"slack:{team}:{channel}:{thread or ts}", addressed=mentioned or direct,
        reply=bool(thread) and thread != ts,
    )  # fmt: skip
    return heard if heard.addressed or heard.reply else None


def _changed(said: dict[str, Any], inner: dict[str, Any]) -> Heard | None:
    """An edit by a person. A link that was unfolded changes a message too, and none of its words."""
    message, before = inner.get("message"), inner.get("previous_message")
    if not isinstance(message, dict) or not isinstance(before, dict) or message.get("text") == before.get("text"):
        return None
    if message.get("bot_id") or message.get("subtype") not in _PLAIN:
        return None
    stamp = _text(at("/edited/ts", message)) or _text(inner.get("event_ts")) or _text(inner.get("ts"))
    return _as(_heard(said, inner, message), "edited", stamp)


def _deleted(said: dict[str, Any], inner: dict[str, Any]) -> Heard | None:
    before = inner.get("previous_message")
    if not isinstance(before, dict) or before.get("bot_id"):
        return None
    return _as(_heard(said, inner, before), "deleted", "")


def _as(heard: Heard | None, change: Literal["edited", "deleted"], stamp: str) -> Heard | None:
    if heard is None:
        return None
    return Heard(
        f"{heard.key}:{change}:{stamp}"[:_LONGEST_KEY], heard.user, heard.text, heard.channel, heard.conversation,
        heard.addressed, heard.reply, change,
    )  # fmt: skip


def _of_a_program(inner: dict[str, Any], app: str) -> bool:
    """What a program wrote, ourselves before all: two that answer each other would never end."""
    return bool(inner.get("bot_id") or inner.get("bot_profile")) or (bool(app) and inner.get("app_id") == app)


def clicks(received: Received) -> Iterator[Clicked]:
    """What was clicked in our letters; nothing for what is no button of ours. Raises Problem 400."""
    fields = form(received)
    said = parse(fields.get("payload", "").encode(), "application/json")
    if not isinstance(said, dict):
        raise Problem(400, "Not an interaction of Slack", "The field `payload` is a JSON object.")
    team = _text(at("/user/team_id", said)) or _text(at("/team/id", said))
    user, answer_to = _text(at("/user/id", said)), _text(said.get("response_url"))
    if not (team and user):
        return
    actions: Any = said.get("actions")
    if said.get("type") == "view_submission":
        view = _text(at("/view/id", said)), _text(at("/view/hash", said))
        actions = [{"value": at("/view/private_metadata", said), "block_id": view[0], "action_ts": view[1]}]
    for action in actions if isinstance(actions, list) else ():
        found = _BUTTON.fullmatch(_text(action.get("value"))) if isinstance(action, dict) else None
        if found is not None:
            key = click_key(
                _text(at("/team/id", said)) or team, _text(at("/container/message_ts", said)),
                _text(action.get("block_id")), _text(action.get("action_id")), _text(action.get("action_ts")), user,
            )  # fmt: skip
            choice: Choice = found[2]  # type: ignore[assignment]  # the pattern has these three
            yield Clicked(key, f"{team}/{user}", found[1], choice, _comment(said), answer_to)


def click_key(team: str, message: str, block: str, action: str, at: str, user: str) -> str:
    """The name of a click, which Slack gives none."""
    return hashlib.sha256("\0".join(("slack", team, message, block, action, at, user)).encode()).hexdigest()


def command(received: Received) -> Commanded | None:
    """A slash command; None when it says too little to be one. Raises Problem 400."""
    fields = form(received)
    team, user, name = fields.get("team_id", ""), fields.get("user_id", ""), fields.get("command", "")
    trigger = fields.get("trigger_id", "")
    if not (team and user and name and trigger):
        return None
    where = f"slack:{team}:{fields.get('channel_id', '')}:{trigger}"
    return Commanded(
        f"{team}:{trigger}"[:_LONGEST_KEY], f"{team}/{user}", name, readable(fields.get("text", "")), where
    )


def form(received: Received) -> dict[str, str]:
    """The fields of a form, each once. Raises Problem 400."""
    try:
        found = parse_qs(received.body.decode("utf-8"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise Problem(400, "Not a form", "Slack sends application/x-www-form-urlencoded here.") from None
    if any(len(values) > 1 for values in found.values()):
        raise Problem(400, "Not a form", "A field of the form is there twice.")
    return {name: values[0] for name, values in found.items()}


def readable(text: str, ours: frozenset[str] | set[str] = frozenset()) -> str:
    """Slack's markup as text: links with their address, the mention of ourselves left out, entities as characters."""

    def plain(found: re.Match[str]) -> str:
        mark, what, label = found[1], found[2], found[3]
        if mark == "@" and what in ours:
            return ""
        if mark:
            return f"{'#' if mark == '#' else '@'}{label or what}"
        return f"{label} ({what})" if label and label != what else what

    return unescape(_MARKUP.sub(plain, text)).strip()


def _comment(said: dict[str, Any]) -> str:
    """The first thing that was typed beside the buttons, or into the form that one opened."""
    values = at("/state/values", said) or at("/view/state/values", said)
    for block in values.values() if isinstance(values, dict) else ():
        for field in block.values() if isinstance(block, dict) else ():
            if isinstance(field, dict) and isinstance(field.get("value"), str) and field["value"].strip():
                return str(field["value"])
    return ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
