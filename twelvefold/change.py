"""What several events change alike, as updates of the state's fields."""

from __future__ import annotations

from typing import Any

from .budget import Usage
from .questions import ASKING
from .state import INLINE_RESULT, State


def ready() -> dict[str, Any]:
    return {"status": "ready", "waiting_for": None}


def waits(what: str) -> dict[str, Any]:
    return {"status": "waiting", "waiting_for": what}


def spent(s: State, ms: int) -> dict[str, Any]:
    return {"used": s.used.plus(Usage(active_ms=ms))} if ms else {}


def phase(s: State, phase: str, **change: Any) -> dict[str, Any]:
    assert s.call is not None, "an event about a call needs an open call"
    return {"call": s.call.model_copy(update={"phase": phase, **change})}


def stuck(then: str) -> dict[str, Any]:
    """What becomes of a run that does not get on. Who is asked how to go on gets a run whose counts start anew."""
    if then == "ask":
        return {"reason": ASKING, "failures": 0, "rejections": 0, "fingerprints": ()}
    return waits("operator") if then == "operator" else {"reason": "stuck"}


def closed(
    s: State, *, count: int = 0, failed: int = 0, denied: int = 0, seq: int = 0, last: str = ""
) -> dict[str, Any]:
    """The open call ends: it is tallied and the task is ready for the next decision."""
    change: dict[str, Any] = {"call": None, "wait_key": None, **ready()}
    if s.call is None:
        return change
    old = s.tally(s.call.tool)
    update: dict[str, Any] = {
        "count": old.count + count, "failed": old.failed + failed, "denied": old.denied + denied,
    }  # fmt: skip
    if count:
        update |= {"last_seq": seq, "last": last if len(last) <= INLINE_RESULT else ""}
    others = tuple(t for t in s.tools if t.tool != s.call.tool)
    return change | {"tools": (*others, old.model_copy(update=update))}
