"""What happened in a run, in plain words for whoever gets its result: which tools, who decided, what went wrong. Never
what a tool was given or gave back, since results go to people outside too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from twelvefold.events import (
    ApprovalAsked,
    ApprovalMoved,
    Arrived,
    Blocked,
    CancelAsked,
    ChildReturned,
    ChildStarted,
    Decided,
    Doubted,
    Event,
    Failed,
    LimitReached,
    PolicyDenied,
    Resumed,
    Returned,
    Settled,
    Stuck,
)  # fmt: skip
from twelvefold.record import Recorded

KINDS = (
    ApprovalAsked, ApprovalMoved, Arrived, Blocked, CancelAsked, ChildReturned, ChildStarted, Decided, Doubted, Failed,
    LimitReached, PolicyDenied, Resumed, Returned, Settled, Stuck,
)  # fmt: skip
NAMES = tuple(kind.__name__ for kind in KINDS)
MOST = 20
_MOVED = {
    "approved": "approved", "approved_with_edits": "approved with changes", "rejected": "rejected",
    "expired": "nobody decided in time", "stale": "the approval was no longer good", "superseded": "no longer asked",
    "answered": "answered", "escalated": "others were asked too", "more_info": "somebody asked back",
}  # fmt: skip
_SETTLED = {"happened": "it did happen", "not": "it did not happen", "abandoned": "nobody can tell whether it happened"}


def told(log: Sequence[Recorded]) -> tuple[list[str], int]:
    """The last lines, oldest first, and how many came before them."""
    tools = {recorded.seq: recorded.event.tool for recorded in log if isinstance(recorded.event, Decided)}
    lines = [
        f"{recorded.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {text} (event {recorded.seq})"
        for recorded in log
        for text in _line(recorded.event, tools)
    ]
    return lines[-MOST:], max(0, len(lines) - MOST)


def _line(event: Event, tools: dict[int, str]) -> Iterator[str]:
    tool = tools.get(getattr(event, "call", None) or 0, "a tool")
    match event:
        case Arrived():
            yield "something arrived"
        case Returned():
            yield f"{tool}: done"
        case Failed(call=None):
            yield "the model could not be asked"
        case Failed():
            yield f"{tool}: failed"
        case PolicyDenied():
            yield f"{tool}: not allowed"
        case ApprovalAsked():
            yield "a person was asked a question" if event.kind == "question" else f"{tool}: an approval was asked for"
        case ApprovalMoved() if event.to in _MOVED:
            yield f"{tool}: {_MOVED[event.to]}" + (f" by {event.by}" if event.by and event.to != "expired" else "")
        case Settled() if event.how in _SETTLED:
            yield f"{tool}: {_SETTLED[event.how]}, says {event.by}"
        case _:
            yield from _rarer(event, tool)


def _rarer(event: Event, tool: str) -> Iterator[str]:
    match event:
        case Doubted():
            yield f"{tool}: nobody knew whether it happened"
        case Blocked():
            yield f"{tool}: stopped by a freeze"
        case ChildStarted():
            yield f"{event.agent} was asked to help"
        case ChildReturned():
            yield f"the helper ended: {event.status}"
        case LimitReached():
            yield f"the budget was used up: {event.dimension}"
        case Stuck():
            yield "it did not get on"
        case CancelAsked():
            yield f"{event.by} asked for the end"
        case Resumed():
            yield f"{event.by} let it go on"
