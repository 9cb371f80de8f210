"""Slack: one letter as one or more messages of a thread, each with metadata by which it is found again.

A recipient is a channel (`C012`), a thread of it (`C012:1700000000.000100`) or a person (`U012`, a direct message). The
receipt is `C012:ts` of the first message. Who clicks Approve sends `LETTER:approve` and no more: the letter names the
question, and whether this person may decide is judged where decisions are judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from socket import gaierror
from ssl import SSLCertVerificationError
from typing import Any
from urllib.error import HTTPError, URLError

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from twelvefold.ports import Letter, NotSent, PerhapsSent, Receipt
from twelvefold.text import one_line

from .blocks import Block, buttons, messages, texts
from .markdown import fenced
from .mrkdwn import escaped

PLACE = re.compile(r"([CDGUW][A-Z0-9]{1,30})(?::(\d{1,12}\.\d{1,9}))?")
EVENT = "twelvefold_letter"
GAP_S = 1.0
TIMEOUT_S = 15
MOST_MESSAGES = 8
"""A letter that takes more goes out as its beginning and a file with all of it."""
PAGES = 5
PERMANENT = frozenset({
    "channel_not_found", "not_in_channel", "is_archived", "invalid_auth", "not_authed", "token_revoked",
    "token_expired", "account_inactive", "user_not_found", "user_disabled", "users_not_found", "cannot_dm_bot",
    "missing_scope", "no_permission", "restricted_action", "message_not_found", "cant_update_message",
    "edit_window_closed",
    "team_access_not_granted", "ekm_access_denied", "org_login_required", "thread_not_found", "no_text",
})  # fmt: skip
TOO_MUCH = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"})
UNSURE = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
Call = Callable[..., Any]
_NEVER_BEGAN = (ConnectionRefusedError, gaierror, SSLCertVerificationError)


class SlackChannel:
    """Posts with a bot's token. Threads may share it."""

    def __init__(self, token: str, *, url: str | None = None, timeout: int = TIMEOUT_S) -> None:
        more: dict[str, Any] = {} if url is None else {"base_url": url}
        self._client = WebClient(token=token, timeout=timeout, retry_handlers=[], **more)
        self._directs: dict[str, str] = {}

    def pace(self, recipient: str) -> tuple[str, float]:
        """One message a second to each channel."""
        return recipient.partition(":")[0], GAP_S

    def push(self, letter: Letter) -> Receipt:
        """Post it, or change the message that it replaces. Raises NotSent or PerhapsSent."""
        if letter.replaces:
            return self._change(letter)
        channel, thread = self._place(letter)
        return self._post(letter, channel, thread, {})

    def find(self, letter: Letter) -> Receipt | None:
        """Look for the letter's messages, and post what is missing of a letter that is there in part."""
        if letter.replaces:
            return None  # to change a message twice is to change it once
        channel, thread = self._place(letter)
        there = self._there(letter, channel, thread)
        return self._post(letter, channel, thread, there) if there else None

    def _place(self, letter: Letter) -> tuple[str, str]:
        """Channel and thread; the thread of the earlier letters where the recipient names none."""
        found = PLACE.fullmatch(letter.recipient)
        if found is None:
            what = one_line(letter.recipient, 60)
            raise NotSent(f"{what!r} is no channel, thread or user of Slack, such as C012, C012:1.2, U012", retry=False)
        channel, thread = found[1], found[2] or letter.thread.partition(":")[2]
        if channel[0] in "UW":
            if channel not in self._directs:
                self._directs[channel] = _asked(self._client.conversations_open, users=channel)["channel"]["id"]
            channel = self._directs[channel]
        return channel, thread

    def _post(self, letter: Letter, channel: str, thread: str, there: dict[int, str]) -> Receipt:
        parts = _parts(letter)
        whole = len(parts) <= MOST_MESSAGES
        root = ""
        for number, blocks in enumerate(parts if whole else parts[:1]):
            at = there.get(number)
            if at is None:
                try:
                    at = self._say(letter, channel, thread or root, number, blocks)
                except NotSent as error:
                    error.partly = error.partly or number > 0
                    raise
            root = root or at
        if not whole and -1 not in there:
            self._upload(letter, channel, thread or root)
        return Receipt(f"{channel}:{root}", f"{len(parts)} messages")

    def _say(self, letter: Letter, channel: str, thread: str, number: int, blocks: list[Block]) -> str:
        given: dict[str, Any] = {
            "channel": channel, "text": escaped(one_line(letter.subject, 200)) or " ", "blocks": blocks,
            "unfurl_links": False, "unfurl_media": False, "metadata": _metadata(letter, number),
            **({"thread_ts": thread} if thread else {}),
        }  # fmt: skip
        try:
            answer = _asked(self._client.chat_postMessage, **given)
        except _Refused as error:
            if error.code not in TOO_MUCH:
                raise
            answer = self._bare(letter, given, number)
        return str(answer["ts"])

    def _bare(self, letter: Letter, given: dict[str, Any], number: int) -> Any:
        """The same without blocks, which Slack did not take: never dropped, all of its text, in order."""
        first, *rest = texts(letter.text) if number == 0 else texts(" ")
        answer = _asked(self._client.chat_postMessage, **{**given, "blocks": None, "text": first})
        for text in rest:
            thread = given.get("thread_ts") or answer["ts"]
            _asked(self._client.chat_postMessage, **{**given, "blocks": None, "text": text, "thread_ts": thread})
        return answer

    def _upload(self, letter: Letter, channel: str, thread: str) -> None:
        """All of it as a file below its beginning."""
        try:
            _asked(
                self._client.files_upload_v2, channel=channel, thread_ts=thread, filename=f"{letter.id}.md",
                title=one_line(letter.subject, 100) or "letter", content=letter.source or letter.text,
            )  # fmt: skip
        except NotSent as error:
            error.partly = True
            raise

    def _change(self, letter: Letter) -> Receipt:
        blocks = _parts(letter)[0]
        text = escaped(one_line(letter.subject, 200)) or " "
        for place in letter.replaces:
            channel, _, at = place.partition(":")
            _asked(self._client.chat_update, channel=channel, ts=at, text=text, blocks=blocks)
        return Receipt(letter.replaces[0], "changed")

    def _there(self, letter: Letter, channel: str, thread: str) -> dict[int, str]:
        """The messages of this letter that have arrived, by number; -1 is its file."""
        found: dict[int, str] = {}
        oldest = f"{letter.created_at.timestamp() - 60:.6f}"
        for message in self._history(channel, thread, oldest):
            found |= _ours(letter, message)
            if message.get("thread_ts") in (None, message.get("ts")) and not thread and _ours(letter, message):
                for reply in self._history(channel, str(message["ts"]), oldest):
                    found |= _ours(letter, reply)
        return found

    def _history(self, channel: str, thread: str, oldest: str) -> list[Any]:
        read = self._client.conversations_replies if thread else self._client.conversations_history
        given = {"channel": channel, "limit": 200, "include_all_metadata": True, "oldest": oldest}
        given |= {"ts": thread} if thread else {}
        found: list[Any] = []
        for _ in range(PAGES):
            answer = _asked(read, **given)
            found += answer["messages"]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return found
            given["cursor"] = cursor
        raise NotSent("too much was written there meanwhile to find the letter", retry=True)


class _Refused(NotSent):
    """Slack said no; `code` is its word for why."""

    def __init__(self, code: str, *, retry: bool) -> None:
        super().__init__(f"Slack says {code}", retry=retry)
        self.code = code


def _parts(letter: Letter) -> list[list[Block]]:
    found = messages(letter.source or fenced(letter.text))
    if letter.choices:
        found[-1].append(buttons(letter.id, one_line(letter.subject, 300)))
    return found


def _metadata(letter: Letter, number: int) -> dict[str, Any]:
    return {"event_type": EVENT, "event_payload": {"delivery_id": letter.id, "part": number}}


def _ours(letter: Letter, message: Any) -> dict[int, str]:
    payload = (message.get("metadata") or {}).get("event_payload") or {}
    if payload.get("delivery_id") == letter.id:
        return {int(payload.get("part", 0)): str(message["ts"])}
    named = [file.get("name") for file in message.get("files") or ()]
    return {-1: str(message["ts"])} if f"{letter.id}.md" in named else {}


def _asked(call: Call, **given: Any) -> Any:
    """One call of the Web API. Raises NotSent or PerhapsSent."""
    try:
        return call(**given)
    except SlackApiError as error:
        raise _judged(error) from error
    except SlackClientError as error:
        raise PerhapsSent("Slack's answer makes no sense") from error
    except HTTPError as error:
        raise PerhapsSent(f"Slack answered {error.code}") from error
    except URLError as error:
        if isinstance(error.reason, _NEVER_BEGAN):
            raise NotSent(f"Slack cannot be reached: {type(error.reason).__name__}", retry=True) from error
        raise PerhapsSent("Slack did not answer in time") from error
    except (OSError, ValueError) as error:
        raise PerhapsSent(f"Slack's answer was lost: {type(error).__name__}") from error


def _judged(error: SlackApiError) -> Exception:
    response = error.response
    code = str(response.get("error") or "") if hasattr(response, "get") else ""
    status = int(getattr(response, "status_code", 200))
    if status == 429 or code == "ratelimited":
        after = str({k.lower(): v for k, v in response.headers.items()}.get("retry-after", "30"))
        wait = float(after) if re.fullmatch(r"\d{1,6}", after) else 30.0
        return NotSent("Slack has had too much for now", retry=True, retry_after=wait, holds="channel")
    if status >= 500 or code in UNSURE or not code:
        return PerhapsSent(f"Slack answered {status} {one_line(code, 40)}")
    return _Refused(one_line(code, 60), retry=code not in PERMANENT)
