"""The part of the fold about a call that waits for a person: `ApprovalAsked` and each `ApprovalMoved`."""

from __future__ import annotations

from typing import Any

from .canonical import canonical
from .change import closed, phase, ready, waits
from .events import ApprovalAsked, ApprovalMoved
from .questions import ASKING
from .record import Recorded
from .state import OpenCall, State
from .verdict import Verdict


def asked(s: State, recorded: Recorded, event: ApprovalAsked) -> dict[str, Any]:
    assert s.call is not None, "an approval needs an open call"
    asks = Verdict.model_validate_json(event.verdict)
    times = {"remind_at": asks.remind, "escalate_at": asks.escalate if asks.escalate_to else None}
    before = {name: recorded.at + after for name, after in times.items() if after and after < asks.deadline}
    asking = {"reason": ""} if s.reason == ASKING else {}
    return asking | phase(
        s, "asked", due=event.deadline, digest=event.digest, args=event.args or s.call.args, asked=recorded.seq,
        asks=asks, **before,
    )  # fmt: skip


OVER: dict[str, Any] = {"due": None, "remind_at": None, "escalate_at": None}


def moved(s: State, seq: int, event: ApprovalMoved) -> dict[str, Any]:
    assert s.call is not None, "an approval needs an open call"
    match event.to:
        case "reminded" | "escalated" | "more_info" | "explained":
            return _still_asked(s, s.call, event)
        case "answered":
            return closed(s, count=1, seq=seq, last=canonical(event.result))
        case "approved":
            return phase(s, "approved", grant=event.grant, **OVER) | ready()
        case "approved_with_edits":
            return phase(s, "approved", args=event.args, digest=event.digest, edited=True, **OVER) | ready()
        case "edited":
            return (
                phase(s, "chosen", args=event.args, editor=event.by or "", verdict="ask", previewed=0, **OVER) | ready()
            )
        case "stale":
            return phase(s, "chosen", stale=s.call.stale + 1, verdict="ask", grant="", previewed=0, **OVER) | ready()
        case "expired" if event.then == "allow":
            return phase(s, "approved", **OVER) | ready()
        case "expired" if event.then == "park" and s.call.is_question:
            return closed(s, denied=1) | waits("operator") | {"reason": "unanswered"}
        case "expired" if event.then == "park":
            return (
                phase(s, "chosen", verdict="ask", previewed=0, **OVER)
                | waits("operator")
                | {"reason": "approval_expired"}
            )
    return closed(s, denied=1)


def _still_asked(s: State, call: OpenCall, event: ApprovalMoved) -> dict[str, Any]:
    if event.to == "more_info":
        longer = call.due + call.asks.deadline if call.due and call.asks else call.due
        return phase(s, "questioned", **OVER | {"due": longer, "says": ""}) | ready()
    if event.to == "explained":
        return phase(s, "asked", says=event.comment) | waits("approval") | {"rejections": 0}
    later = None if event.to == "escalated" else call.escalate_at
    return phase(s, "asked", remind_at=None, escalate_at=later) | waits("approval")
