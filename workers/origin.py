"""Where a run was begun, as a place that can be answered: what `to.reply()` means.

Only whom our mail server or Slack itself proves is answered: a forged sender would have us write to a stranger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .store import origins
from .work import Runtime, Work

_THREAD = re.compile(r"slack:[^:]+:([CDG][A-Z0-9]+):(\d+\.\d+)")
_USER = re.compile(r".* [A-Z0-9]+/([UW][A-Z0-9]+)")
_ID = re.compile(r"<[^<>\s]+>")
_AGAIN = re.compile(r"(?:re|aw|sv|antw|回复|答复)\s*[:\uff1a]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A channel, a recipient, and what the letter needs to stand in the thread there."""

    channel: str
    recipient: str
    more: dict[str, Any] = field(default_factory=dict)


def origin(work: Work, run: Runtime) -> Place | None:
    """The place; None for a run that nobody began who can be written to: a schedule, a webhook, an API call."""
    event = work.task.read(work.state.opened)
    source = event.get("source", "")
    if source not in ("email", "slack"):
        return None
    row = origins.opened(run.db, work.held.tenant, source, event["key"])
    if row is None:
        return None
    found = _in_slack(row) if source == "slack" else _by_mail(row, unproven=bool(event.get("unproven")))
    if found is None:
        run.log.warning("not_answered", task=work.held.id, source=source)
    return found


def _in_slack(row: Mapping[str, Any]) -> Place | None:
    """The thread of the message; for a slash command, which has none, whoever typed it."""
    thread = _THREAD.fullmatch(row["conversation"] or "")
    if thread is not None:
        return Place("slack", f"{thread[1]}:{thread[2]}")
    user = _USER.fullmatch(row["proof"] or "")
    return None if user is None else Place("slack", user[1])


def _by_mail(row: Mapping[str, Any], *, unproven: bool) -> Place | None:
    if unproven or not row["sender"]:
        return None
    headers = row["headers"] or {}
    answered = _ID.findall(headers.get("message-id", ""))[:1]
    chain = list(dict.fromkeys(_ID.findall(headers.get("references", "")) + answered))
    subject = _AGAIN.sub("", headers.get("subject", ""), count=1) if headers.get("subject") else ""
    more = {"answers": answered[0], "chain": chain} if answered else {}
    return Place("email", row["sender"], more | ({"thread": f"Re: {subject}"} if subject else {}))
