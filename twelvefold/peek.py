"""Opening again what was folded or cut: a page of one event, or several small events on one page."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .errors import ToolError
from .events import Prefetched
from .pages import PAGE_TOKENS, fits, page
from .record import revive
from .shape import Row, body_of, shape

MOST_ROWS = 40
"""So many events at most stand on one page."""


def peek(rows: Sequence[Row], event: int, number: int) -> str:
    """The page `number` of an event; `rows` are what the model may see from that event on, oldest first. What fits on
    a first page is followed by the next events. Raises ToolError with what there is instead.
    """
    if not rows or rows[0].seq != event:
        after = f"The next one is event {rows[0].seq}." if rows else "There is none after it either."
        raise ToolError(f"Event {event} is not there, or there is nothing to see in it. {after}", affected=("event",))
    head, body = _text(rows[0])
    if number > 1 or not fits(body, PAGE_TOKENS):
        return _page(head, body, event, number)
    return _several(head + body, rows)


def _text(row: Row) -> tuple[str, str]:
    """What an event is, and what it says: the text that has pages."""
    found = revive(row.type, row.version, json.loads(row.data))
    if isinstance(found, Prefetched):
        return f"Event {row.seq}, prefetched:\n", body_of({"found": found.found, "failed": found.failed})
    name, attributes, value = shape(found)
    said = "".join(f", {key} {text}" for key, text in attributes.items())
    return f"Event {row.seq}, {name}{said}:\n", body_of(value)


def _page(head: str, text: str, event: int, number: int) -> str:
    found = page(text, number)
    if found is None:
        raise ToolError(f"Event {event} has no page {number}.", affected=("page",), suggestion="Take an earlier page.")
    body, left = found
    if not left:
        return f"{head}{body}\n[The end of event {event}.]"
    return f"{head}{body}\n[{left} more characters: next_page(event={event}, page={number + 1})]"


def _several(text: str, rows: Sequence[Row]) -> str:
    parts = [text]
    for row in rows[1:MOST_ROWS]:
        further = "".join(_text(row))
        if not fits("\n".join([*parts, further]), PAGE_TOKENS):
            break
        parts.append(further)
    shown = "\n".join(part.rstrip("\n") for part in parts)
    if len(parts) == len(rows):
        return shown
    return f"{shown}\n[Further events: next_page(event={rows[len(parts)].seq}, page=1)]"
