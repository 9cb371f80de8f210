"""What the model sees: events to a system message, a menu and one user message, with a receipt of every event.

Event data can never close or forge a tag: every text goes through `markup`. Older events leave the window at a
boundary that moves in jumps, so that the prefix is append-only between jumps; what left is named, never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .agent import Agent
from .canonical import sha256
from .directory import Directory
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
from .fold import MOST_WINDOW, SHOWN_TOKENS, UNSEEN
from .markup import join, tag, to_yaml
from .record import revive
from .state import State, Task
from .text import shorten
from .tokens import tokens_of

WINDOW_TOKENS = 8_000
"""Above this the boundary jumps so that about half of it stays."""
KEEP_ROWS = 8
"""So many of the newest events stay whole, whatever their size."""
CACHED_LENGTH = 4_096
"""An event with more data than this is rendered anew each time, so that the cache stays small."""
NOBODY = Directory()
counted = lru_cache(maxsize=4096)(tokens_of)
"""The tokens of a part; most parts stood in the last window too."""
UNSEEN_TYPES = tuple(kind.__name__ for kind in UNSEEN)


@dataclass(frozen=True, slots=True)
class Row:
    """A stored event as the log gives it: `data` is canonical JSON text."""

    seq: int
    type: str
    version: int
    data: str


@dataclass(frozen=True, slots=True)
class Window:
    """One request's texts, and the receipt that accounts for every event up to `seq`."""

    system: str
    user: str
    menu: tuple[dict[str, Any], ...]
    receipt: dict[str, Any]
    request: str


def next_boundary(s: State) -> int:
    """Where the next window begins: unchanged while it fits, else the jump that leaves about half."""
    rows = [row for row in s.window if row[0] >= s.boundary]
    total = sum(tokens for _, tokens in rows)
    if total <= WINDOW_TOKENS and len(rows) < MOST_WINDOW:
        return s.boundary
    while len(rows) > KEEP_ROWS and (total > WINDOW_TOKENS // 2 or len(rows) > MOST_WINDOW // 2):
        total -= rows.pop(0)[1]
    return rows[0][0]


def build(
    agent: Agent, task: Task, prompt: str, rows: Sequence[Row], boundary: int, directory: Directory = NOBODY
) -> Window:
    """The window of a task: `rows` are its opening event and those from `boundary` on. People are shown by their names
    in the directory, never by an address.
    """
    s = task.state
    offered = agent.offered(task)
    menu, menu_text = tuple(agent.menu_entries[name] for name in offered), agent.menu_text(offered)
    seen = [row for row in rows if row.type not in UNSEEN_TYPES]
    opening = [row for row in seen if row.seq == s.opened and row.seq < boundary]
    recent = [row for row in seen if row.seq >= boundary]
    shown = {row.seq: directory.masked(_rendered(row)) for row in [*opening, *recent]}
    left_out = _left_out(boundary, [row.seq for row in opening])
    gaps = {first: tag("left_out", f"Events {first} to {last} are not shown any more.") for first, last in left_out}
    user = "\n".join(["<task>", *(part for _, part in sorted([*gaps.items(), *shown.items()])), "</task>"])
    sections = {
        "system": counted(prompt), "tools": counted(menu_text), "left_out": sum(map(tokens_of, gaps.values())),
    }  # fmt: skip
    receipt = _receipt(s, boundary, {seq: counted(part) for seq, part in shown.items()}, left_out, sections)
    return Window(prompt, user, menu, receipt, sha256(prompt, user, menu_text, agent.model))


def _left_out(boundary: int, opening: Sequence[int]) -> list[list[int]]:
    """The ranges below the boundary that are not shown: all of it but the opening event."""
    edges = [0, *opening, boundary]
    return [[a + 1, b - 1] for a, b in pairwise(edges) if a + 1 <= b - 1]


def _receipt(
    s: State, boundary: int, whole: dict[int, int], left_out: list[list[int]], sections: dict[str, int]
) -> dict[str, Any]:
    """Every seq up to the state's exactly once: shown whole, left out below the boundary, or bookkeeping."""
    events = sum(whole.values())
    return {
        "whole": [[seq, tokens] for seq, tokens in whole.items()],
        "left_out": left_out,
        "bookkeeping": [n for n in range(boundary, s.seq + 1) if n not in whole],
        "sections": {**sections, "events": events},
        "total": sum(sections.values()) + events,
    }


def _rendered(row: Row) -> str:
    render = rendered if len(row.data) <= CACHED_LENGTH else rendered.__wrapped__
    return render(row.seq, row.type, row.version, row.data)


@lru_cache(maxsize=4096)
def rendered(seq: int, type_name: str, version: int, data: str) -> str:
    """One event as a tag. Cached: an event never changes, and its neighbour steps render it again."""
    event = revive(type_name, version, json.loads(data))
    if isinstance(event, Prefetched):
        return _prefetched(seq, event)
    name, attributes, value = _shape(event)
    return tag(name, _within(value, SHOWN_TOKENS), n=str(seq), **attributes)


def _within(value: Any, most: int) -> str:
    """The value as text of at most so many tokens."""
    body = value if isinstance(value, str) else to_yaml(value)
    tokens = tokens_of(body)
    return shorten(body, len(body) if tokens <= most else len(body) * most // tokens)


def _prefetched(seq: int, event: Prefetched) -> str:
    """One tag for each function inside that of the event; they share what one event may show."""
    share = SHOWN_TOKENS // max(1, len(event.found))
    found = [tag(name, _within(value, share)) for name, value in event.found.items()]
    missing = [tag(name, failed=why) for name, why in event.failed.items()]
    return tag("prefetched", join([*found, *missing]), n=str(seq))


def _shape(event: Event) -> tuple[str, dict[str, str], Any]:  # noqa: C901 - one arm an event
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
            keep = ("type", "message", "affected", "suggestion", "retry_after")
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
