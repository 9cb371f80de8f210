"""The result of a run as it is told to people: what came out, why, what that rests on and what it cost.

The row holds what was known at the commit; the timeline is read from the log up to the event that the letter tells, and
so is the same at every attempt.
"""

from __future__ import annotations

from typing import Any

from delivery import render
from delivery.render import Ended
from twelvefold.markup import to_yaml

from . import timeline
from .store import log
from .store.database import Database
from .store.outbox import Taken

WHY = {
    "done": "It is done.", "nothing_to_do": "There was nothing to do.", "cancelled": "It was cancelled.",
    "failed": "It could not be done.", "in_doubt": "Nobody can tell whether its last effect happened.",
}  # fmt: skip

LONGEST_PROSE = 20_000
"""Longer Markdown is shown letter by letter: to read it as Markdown would take too long."""


def source(db: Database, taken: Taken, leave: str = "") -> str:
    """The letter as Markdown. `leave`: where the reader of a digest ends it."""
    r = taken.payload["result"]
    found = log.latest(db, taken.task_id, timeline.NAMES, opened=r["opened"], until=taken.seq)
    lines, missing = timeline.told(found)
    what, value = _what(r["outcome"])
    ended = Ended(
        title=taken.payload["subject"], why=WHY.get(r["reason"]) or WHY[r["status"]], what=what, value=value,
        cost=_cost(r["used"]), timeline=lines, missing=missing,
        about=[("Agent", r["agent"]), *([("About", r["about"])] if r["about"] else []), ("Task", taken.task_id)],
    )  # fmt: skip
    if taken.payload.get("digest"):
        return render.digest(ended, leave)
    if r["status"] == "done":
        return render.outcome(ended)
    return render.failure(ended, f"See it all: twelvefold show {taken.task_id}")


def _what(outcome: Any) -> tuple[str, str]:
    """The agent's own Markdown, or the fields of its result as they are."""
    if outcome is None:
        return "", ""
    if isinstance(outcome, dict) and list(outcome) == ["text"] and isinstance(outcome["text"], str):
        text = outcome["text"]
        return (text, "") if len(text) <= LONGEST_PROSE else ("", text)
    return "", to_yaml(outcome)


def _cost(used: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Decisions", str(used["decisions"])), ("Tokens", f"{used['tokens']:,}"), ("Money", f"{used['usd']} USD"),
        ("Work", f"{used['active_ms'] / 1000:.1f} s"),
    ]  # fmt: skip
