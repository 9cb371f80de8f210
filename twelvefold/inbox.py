"""What an arrival means: its stored form to the event that is folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import Unreadable
from .events import ApprovalMoved, Arrived, CancelAsked, ChildReturned, Event, Resumed, Settled

UNPROVEN = "none"
"""The proof of a sender whom nothing shows to be the one. Without any word about it nothing is proven either."""


def event_of(
    kind: str,
    *,
    source: str,
    key: str,
    payload: Any,
    sender: str | None,
    wait_key: str | None,
    cleaned: int = 0,
    proof: str | None = None,
) -> Event:
    """The event of one arrival. `kind`: message, event, decision, settlement, cancel, resume or child.

    Raises Unreadable for any other kind: newer code accepted it and will read it.
    """
    data: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    match kind:
        case "decision":
            return ApprovalMoved.model_validate(data)
        case "settlement":
            return Settled.model_validate(data)
        case "cancel":
            return CancelAsked.model_validate(data)
        case "resume":
            return Resumed.model_validate(data)
        case "child":
            return ChildReturned.model_validate(data)
        case "message" | "event":
            return Arrived.model_validate({"kind": kind, "source": source, "key": key, "payload": payload,
                                           "sender": sender, "wait_key": wait_key, "cleaned": cleaned,
                                           "unproven": proof in (None, UNPROVEN)})  # fmt: skip
    raise Unreadable(f"An arrival of kind {kind!r} is newer than this code.")
