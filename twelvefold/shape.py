"""One event as the model sees it: a tag with attributes and a readable value, of at most so many tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .events import (
    ApprovalMoved,
    Arrived,
    Blocked,
    ChildReturned,
    Decided,
    DoneRefused,
    Doubted,
    Event,
    Failed,
    PolicyDenied,
    Prefetched,
    Rejected,
    Returned,
    Settled,
    Woke,
)  # fmt: skip
from .markup import Markup, join, tag, to_yaml
from .pages import PAGE_TOKENS, fits, page
from .record import revive
from .room import SHOWN_TOKENS

CACHED_LENGTH = 4_096
"""An event with more data than this is rendered anew each time, so that the cache stays small."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored event as the log gives it: `data` is canonical JSON text."""

    seq: int
    type: str
    version: int
    data: str


@dataclass(frozen=True, slots=True)
class Shape:
    """An event's tag, and whether it shows less than what happened: a page of it, or what its tool chose to show."""

    text: Markup
    projected: bool = False


def rendered(row: Row) -> Shape:
    """One event as a tag. Cached: an event never changes, and its neighbour steps render it again."""
    render = _rendered if len(row.data) <= CACHED_LENGTH else _rendered.__wrapped__
    return render(row.seq, row.type, row.version, row.data)


@lru_cache(maxsize=4096)
def _rendered(seq: int, type_name: str, version: int, data: str) -> Shape:
    event = revive(type_name, version, json.loads(data))
    if isinstance(event, Prefetched):
        return _prefetched(seq, event)
    name, attributes, value = shape(event)
    body, cut = _within(seq, body_of(value), SHOWN_TOKENS)
    chosen = isinstance(event, Returned) and event.shown is not None and event.result is not None
    return Shape(tag(name, body, n=str(seq), **attributes), cut or chosen)


def body_of(value: Any) -> str:
    """A value as text: YAML, and a text as it stands."""
    return value if isinstance(value, str) else to_yaml(value)


def _within(seq: int, body: str, most: int) -> tuple[str, bool]:
    """The text where it fits, else its first page and how to turn it."""
    if fits(body, most):
        return body, False
    first = page(body, 1, min(most, PAGE_TOKENS))
    assert first is not None, "every text has a first page"
    then = 2 if most >= PAGE_TOKENS else 1
    return f"{first[0]}… [{first[1]} more characters: next_page(event={seq}, page={then})]", True


def _prefetched(seq: int, event: Prefetched) -> Shape:
    """One tag for each function inside that of the event; they share what one event may show."""
    share = SHOWN_TOKENS // max(1, len(event.found)) - 40
    cut = {name: _within(seq, body_of(value), share) for name, value in event.found.items()}
    found = [tag(name, body) for name, (body, _) in cut.items()]
    missing = [tag(name, failed=why) for name, why in event.failed.items()]
    at = event.at.isoformat(timespec="seconds") if event.at else None
    text = tag("prefetched", join([*found, *missing]), n=str(seq), as_of=at)
    return Shape(text, any(more for _, more in cut.values()))


def shape(event: Event) -> tuple[str, dict[str, str], Any]:  # noqa: C901 - one arm an event
    """The tag, the attributes and the value of an event."""
    match event:
        case Arrived():
            sender = {"from": event.sender} if event.sender else {}
            proven = {"proven": "no"} if event.unproven else {}
            return event.kind, {"source": event.source, **sender, **proven}, event.payload
        case Decided():
            return "decided", {"tool": event.tool, "by": event.by}, json.loads(event.args)
        case Rejected():
            return "rejected", {"why": event.kind}, event.text
        case Returned():
            check = {"check": event.check} if event.check else {}
            return "returned", {"call": str(event.call), **check}, event.result if event.shown is None else event.shown
        case Failed():
            words = ("message", "affected", "suggestion", "retry_after")
            # what no model can mend is told to operators, not to it
            keep = ("type", *(words if event.then != "operator" else ()))
            data = event.model_dump(mode="json", exclude_defaults=True)
            return "failed", {"call": str(event.call or "model")}, {k: data[k] for k in keep if k in data}
        case PolicyDenied() | DoneRefused():
            return "refused", {"call": str(event.call)}, event.why
        case ApprovalMoved(to="answered"):
            return "answer", {"call": str(event.call)}, event.result
        case ApprovalMoved():
            said = event.comment or event.reason
            told = {"changed": event.changed, "comment": said} if event.changed else said
            return "approval", {"call": str(event.call), "state": event.to}, told
        case Doubted() | Settled():
            data = event.model_dump(mode="json", exclude_defaults=True)
            state = event.how if isinstance(event, Settled) else "in doubt"
            return "doubt", {"call": str(event.call), "state": state}, data.get("result", "")
        case Blocked():
            until = {"until": event.until.isoformat()} if event.until else {}
            return "blocked", {"call": str(event.call), "scope": event.scope, **until}, event.reason
        case ChildReturned():
            return "child", {"status": event.status}, event.result
        case Woke():
            return "woke", {}, ", ".join(event.passed)
    return type(event).__name__.lower(), {}, event.model_dump(mode="json", exclude_defaults=True)
