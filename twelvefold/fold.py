"""The fold: (state, recorded event) -> state. Total over the event union, and it never calls an agent's code.

fold_all(a + b) equals fold_all(b) after fold_all(a): whatever a later event needs is in the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, assert_never, cast

from .asked import asked, moved
from .budget import Usage
from .canonical import canonical, sha256
from .change import closed, phase, ready, spent, stuck, waits
from .controls import Explain, Wait
from .events import (
    ApprovalAsked,
    ApprovalMoved,
    Arrived,
    Blocked,
    CancelAsked,
    ChildReturned,
    ChildStarted,
    Decided,
    DoneRefused,
    Doubted,
    Event,
    Failed,
    Finished,
    Folded,
    LimitReached,
    ModelAsked,
    PolicyDenied,
    Prefetched,
    Previewed,
    Quarantined,
    Rejected,
    Reopened,
    Resumed,
    Returned,
    Settled,
    Started,
    Stuck,
    Throttled,
    Woke,
)  # fmt: skip
from .record import Recorded
from .room import grown, noted
from .state import Child, OpenCall, State, unused

UNSEEN = (ModelAsked, Started, Finished, Quarantined, LimitReached, ApprovalAsked, Previewed, Throttled)
"""Bookkeeping that a model has no use for."""
KEEPS_HELD = (Arrived, ChildReturned, Resumed, Quarantined, CancelAsked)
ENDS_QUARANTINE = (Resumed, CancelAsked)
FINGERPRINTS = 4
FROZEN_AGAIN = timedelta(seconds=60)
"""A re-send that a freeze holds back is tried again after so long, or when the freeze ends by itself."""


def fold_all(state: State, events: Iterable[Recorded]) -> State:
    """The state after all of the events."""
    for recorded in events:
        state = fold(state, recorded)
    return state


def fold(state: State, recorded: Recorded) -> State:
    """The state after one event. Raises ValueError when the seq is not the next one."""
    if recorded.seq != state.seq + 1:
        raise ValueError(f"Event {recorded.seq} does not follow event {state.seq}.")
    event = recorded.event
    change = _apply(state, recorded, event)
    change["seq"], change["at"] = recorded.seq, recorded.at
    if state.held and not isinstance(event, KEEPS_HELD):
        change["held"] = 0
    if state.status == "quarantined" and not isinstance(event, ENDS_QUARANTINE):
        change.pop("status", None)
        change.pop("waiting_for", None)
    if not isinstance(event, (*UNSEEN, Folded)):
        change["window"] = grown(state, recorded.seq, event)
    change["view"] = noted(state, recorded.seq, event)
    return state.model_copy(update=change)


def _apply(s: State, recorded: Recorded, event: Event) -> dict[str, Any]:  # noqa: C901 - one arm an event
    seq = recorded.seq
    match event:  # the most frequent first
        case ModelAsked():
            cost = event.spent
            used = Usage(tokens=cost.tokens_in + cost.tokens_out, usd=cost.usd, active_ms=cost.ms)
            return {"used": s.used.plus(used), "transport": 0} | _window_from(s, event.boundary)
        case Decided():
            return _decided(s, seq, recorded, event)
        case Returned():
            return _returned(s, seq, event)
        case Arrived():
            return _arrived(s, seq, recorded, event)
        case Reopened():
            return _new_run(s, event, recorded)
        case Prefetched():
            return {"prefetched": seq} | spent(s, event.ms)
        case Rejected():
            return {"used": s.used.plus(Usage(decisions=1)), "rejections": s.rejections + 1}
        case PolicyDenied():
            return closed(s, denied=1)
        case Previewed():
            return phase(s, "chosen", previewed=seq, fingerprint=event.fingerprint) | spent(s, event.ms)
        case ApprovalAsked():
            assert s.call is not None, "an approval needs an open call"
            what = "answer" if event.kind == "question" else "approval"
            return asked(s, recorded, event) | waits(what)
        case ApprovalMoved():
            return moved(s, seq, event)
        case Started():
            return phase(s, "begun", key=event.key, attempt=event.attempt, due=None) | ready()
        case Failed():
            return _failed(s, event)
        case Doubted():
            then = ready() if event.then == "same_key" else waits("settle")
            return phase(s, "doubt", doubt=event.then, due=event.settle_at) | then | spent(s, event.ms)
        case Settled():
            return _settled(s, event)
        case Woke():
            return _woke(s, event)
        case ChildStarted():
            charge = Usage(decisions=event.decisions, tokens=event.tokens, usd=event.usd, active_ms=event.active_ms)
            born = (*s.children, Child(id=event.child, agent=event.agent, call=event.call))
            return waits("child") | {
                "used": s.used.plus(charge),
                "children": born,
                "children_born": s.children_born + 1,
            }
        case ChildReturned():
            return _child_returned(s, seq, event)
        case Folded():
            return spent(s, event.ms) | _window_from(s, event.last + 1)
        case LimitReached(dimension="context"):
            return waits("operator") | {"reason": "context"}
        case LimitReached():
            return waits("budget") | {"due": event.until, "reason": event.scope and f"budget {event.scope}"}
        case Throttled():
            return waits("retry") | {"due": event.until}
        case Stuck():
            return stuck(event.then)
        case Blocked():
            return _blocked(s, recorded, event)
        case CancelAsked():
            if s.status == "done" and s.message_seq <= s.outcome_seq:
                return {}  # nothing is left to cancel, and a later run is not meant
            if s.status not in ("waiting", "quarantined"):
                return {"cancel": True}
            in_doubt = s.call is not None and s.call.phase == "doubt"
            return {"cancel": True} | (_resting(s) if in_doubt else ready())
        case DoneRefused():
            return closed(s)
        case Finished():
            return {
                "status": event.status, "waiting_for": None, "call": None, "wait_key": None, "due": None,
                "lifetime": s.lifetime.plus(s.used), "outcome_seq": seq, "reason": event.reason,
            }  # fmt: skip
        case Quarantined():
            held = {"held": seq} if event.held else {}
            return {"status": "quarantined", "waiting_for": None, "reason": event.reason} | held
        case Resumed():
            return _resumed(s, event)
        case _:
            assert_never(cast("Any", event))


def _window_from(s: State, boundary: int) -> dict[str, Any]:
    """The window from there on; 0 is what a question has that is not about the window."""
    kept = tuple(row for row in s.window if row[0] >= boundary)
    return {"boundary": boundary, "window": kept} if boundary else {}


def _waits_for_wait(s: State) -> bool:
    return s.call is not None and s.call.tool == Wait.__spec__.name


def _arrived(s: State, seq: int, recorded: Recorded, event: Arrived) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if not s.opened:
        change = {"opened": seq, "opened_at": recorded.at}
    if event.kind == "control":
        return change
    if event.unproven:
        change["tainted"] = s.tainted or seq
    awaited = event.wait_key is not None and event.wait_key == s.wait_key
    if _waits_for_wait(s) and (event.kind == "message" or awaited):
        change |= closed(s, count=1, seq=seq)
    if event.kind == "message":
        change |= {"fingerprints": (), "message_seq": seq}
    return change


def _new_run(s: State, event: Reopened, recorded: Recorded) -> dict[str, Any]:
    return {
        **ready(), "run": event.run, "opened": event.by, "opened_at": recorded.at, "used": Usage(), "extra": Usage(),
        "ends_at": None, "fingerprints": (), "tools": (), "failures": 0, "rejections": 0, "transport": 0,
        "children_born": 0, "reason": "", "outcome_seq": 0, "prefetched": 0,
    }  # fmt: skip


def _decided(s: State, seq: int, recorded: Recorded, event: Decided) -> dict[str, Any]:
    if s.call is not None and s.call.phase == "questioned":
        says = Explain.model_validate_json(event.args).text
        return phase(s, "questioned", says=says) | {"rejections": 0, "used": s.used.plus(Usage(decisions=1))}
    call = OpenCall(
        seq=seq, tool=event.tool, args=event.args, kind=event.kind, verdict=event.verdict, digest=event.digest,
        phase="approved" if event.verdict == "auto" else "chosen",
    )  # fmt: skip
    change: dict[str, Any] = {"call": call, "rejections": 0}
    if not event.further:
        change["used"] = s.used.plus(Usage(decisions=1))
    if event.about:
        change["about"] = event.about
    if event.tool != Wait.__spec__.name:
        mark = f"{event.tool} {event.args[:60]} #{sha256(event.args)[:8]}"
        return change | {"fingerprints": (*s.fingerprints, mark)[-FINGERPRINTS:]}
    wait = Wait.model_validate_json(event.args)
    due = recorded.at + timedelta(seconds=wait.seconds) if wait.seconds else None
    change |= waits("event" if wait.event else "timer")
    change["call"] = call.model_copy(update={"due": due})
    return change | {"wait_key": wait.event, "fingerprints": ()}


def _returned(s: State, seq: int, event: Returned) -> dict[str, Any]:
    change = closed(s, count=1, seq=seq, last=canonical(event.result))
    change |= spent(s, event.ms)
    if event.tainted:
        change["tainted"] = s.tainted or seq
    if s.call is None or s.call.kind != "control":
        change["failures"] = 0  # a plan between two failures is no success
    return change | ({"about": event.about} if event.about else {})


def _failed(s: State, event: Failed) -> dict[str, Any]:
    if event.call is not None:
        return closed(s, failed=1) | {"failures": s.failures + 1} | spent(s, event.ms)
    change = {"transport": s.transport + 1} | spent(s, event.ms)
    if event.type == "context" and event.then == "retry":
        return change  # a shorter window is asked with at once
    if event.then == "operator":
        return change | waits("operator") | {"reason": event.type}
    return change | waits("retry") | {"due": event.not_before}


def _blocked(s: State, recorded: Recorded, event: Blocked) -> dict[str, Any]:
    if s.call is None or s.call.phase != "doubt":
        return closed(s, denied=1)
    # what has begun stays in doubt; only sending it again has to wait
    again = recorded.at + FROZEN_AGAIN
    return phase(s, "doubt", due=min(again, event.until or again)) | waits("settle")


def _settled(s: State, event: Settled) -> dict[str, Any]:
    match event.how:
        case "happened":
            return phase(s, "settled", due=None, result=canonical(event.result)) | ready()
        case "not":
            return closed(s, failed=1) | {"failures": s.failures + 1}
        case "abandoned":
            return closed(s, failed=1) | {"reason": "in_doubt"}
        case "unknown":
            then = "find" if event.settle_at else "ask"
            return phase(s, "doubt", doubt=then, due=event.settle_at) | waits("settle")
    assert_never(event.how)


def _woke(s: State, event: Woke) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if "wait" in event.passed:
        change |= {"due": None} | (ready() if s.waiting_for in ("retry", "budget") else {})
    if s.call is not None and s.call.phase in ("asked", "questioned"):
        return change | (ready() if set(event.passed) - {"wait"} else {})  # what is over, `decide` sees by its time
    if s.call is not None and any(name != "wait" for name in event.passed):
        if _waits_for_wait(s):
            return change | closed(s, count=1, seq=s.seq + 1)
        change |= phase(s, s.call.phase, due=None) | ready()
    return change


def _child_returned(s: State, seq: int, event: ChildReturned) -> dict[str, Any]:
    mine = next((child for child in s.children if child.id == event.child), None)
    change: dict[str, Any] = {"children": tuple(c for c in s.children if c.id != event.child)}
    if event.tainted:
        change["tainted"] = s.tainted or seq
    if event.run == s.run and mine:
        back = Usage(decisions=event.decisions, tokens=event.tokens, usd=event.usd, active_ms=event.active_ms)
        change["used"] = unused(s.used, back)
    if mine and s.call is not None and s.call.seq == mine.call:
        change |= closed(s, count=1, seq=s.seq + 1)
    return change


def _resumed(s: State, event: Resumed) -> dict[str, Any]:
    if event.verb == "raise":
        more = Usage(decisions=event.decisions, tokens=event.tokens, usd=event.usd, active_ms=event.active_ms)
        change = {"extra": s.extra.plus(more), "ends_at": event.deadline or s.ends_at}
        return change | (ready() | {"due": None, "reason": ""} if s.waiting_for == "budget" else {})
    reason = s.reason if s.reason == "in_doubt" else ""
    fresh = {"failures": 0, "rejections": 0, "transport": 0, "fingerprints": (), "reason": reason, "due": None}
    if s.status == "quarantined":
        return fresh | _resting(s)
    return fresh | (ready() if s.waiting_for in ("operator", "retry") else {})


def _resting(s: State) -> dict[str, Any]:
    """What the open call is waiting for, or ready."""
    call = s.call
    if call is None or s.held:
        return ready()
    if call.phase == "asked":
        return waits("answer" if call.is_question else "approval")
    if call.phase == "doubt" and call.doubt != "same_key" and (call.due or call.doubt == "ask"):
        return waits("settle")
    if _waits_for_wait(s):
        return waits("event" if s.wait_key else "timer")
    return waits("child") if any(child.call == call.seq for child in s.children) else ready()
