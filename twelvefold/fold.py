"""The fold: (state, recorded event) -> state. Total over the event union, and it never calls an agent's code.

fold_all(a + b) equals fold_all(b) after fold_all(a): whatever a later event needs is in the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, assert_never, cast

from .budget import Usage
from .canonical import canonical, sha256
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
    LimitReached,
    ModelAsked,
    PolicyDenied,
    Prefetched,
    Previewed,
    Quarantined,
    Recorded,
    Rejected,
    Reopened,
    Resumed,
    Returned,
    Settled,
    Started,
    Stuck,
    Woke,
)  # fmt: skip
from .state import INLINE_RESULT, Child, OpenCall, State, unused
from .verdict import Verdict

UNSEEN = (ModelAsked, Started, Finished, Quarantined, LimitReached, ApprovalAsked, Previewed)
"""Bookkeeping that a model has no use for."""
KEEPS_HELD = (Arrived, ChildReturned, Resumed, Quarantined, CancelAsked)
ENDS_QUARANTINE = (Resumed, CancelAsked)
FINGERPRINTS = 4
MOST_WINDOW = 64
SHOWN_TOKENS = 2_000
"""The most of one event that is shown; the rest is named and kept."""
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
    if type(event) not in UNSEEN:
        window = (*state.window, (recorded.seq, min(tokens_of(event.data), SHOWN_TOKENS)))
        change["window"] = window[-MOST_WINDOW:]
    return state.model_copy(update=change)


def tokens_of(text: str) -> int:
    """A cautious estimate: ASCII at 3 characters a token, everything else at one and a half tokens a character."""
    if text.isascii():
        return len(text) // 3 + 8
    wide = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - wide) // 3 + wide * 3 // 2 + 8


def _apply(s: State, recorded: Recorded, event: Event) -> dict[str, Any]:  # noqa: C901 - one arm an event
    seq = recorded.seq
    match event:  # the most frequent first
        case ModelAsked():
            spent = event.spent
            used = Usage(tokens=spent.tokens_in + spent.tokens_out, usd=spent.usd, active_ms=spent.ms)
            kept = tuple(row for row in s.window if row[0] >= event.boundary)
            return {"used": s.used.plus(used), "transport": 0, "boundary": event.boundary, "window": kept}
        case Decided():
            return _decided(s, seq, recorded, event)
        case Returned():
            return _returned(s, seq, event)
        case Arrived():
            return _arrived(s, seq, recorded, event)
        case Reopened():
            return _new_run(s, event, recorded)
        case Prefetched():
            return {"prefetched": seq} | _spent(s, event.ms)
        case Rejected():
            return {"used": s.used.plus(Usage(decisions=1)), "rejections": s.rejections + 1}
        case PolicyDenied():
            return _closed(s, denied=1)
        case Previewed():
            return _phase(s, "chosen", previewed=seq, fingerprint=event.fingerprint) | _spent(s, event.ms)
        case ApprovalAsked():
            assert s.call is not None, "an approval needs an open call"
            waits = _waits("answer" if event.kind == "question" else "approval")
            return _asked(s, recorded, event) | waits
        case ApprovalMoved():
            return _approval_moved(s, seq, event)
        case Started():
            return _phase(s, "begun", key=event.key, attempt=event.attempt, due=None) | _ready()
        case Failed():
            return _failed(s, event)
        case Doubted():
            waits = _ready() if event.then == "same_key" else _waits("settle")
            return _phase(s, "doubt", doubt=event.then, due=event.settle_at) | waits | _spent(s, event.ms)
        case Settled():
            return _settled(s, event)
        case Woke():
            return _woke(s, event)
        case ChildStarted():
            charge = Usage(decisions=event.decisions, tokens=event.tokens, usd=event.usd, active_ms=event.active_ms)
            born = (*s.children, Child(id=event.child, agent=event.agent, call=event.call))
            return _waits("child") | {
                "used": s.used.plus(charge),
                "children": born,
                "children_born": s.children_born + 1,
            }
        case ChildReturned():
            return _child_returned(s, seq, event)
        case LimitReached():
            return _waits("budget")
        case Stuck():
            return _waits("operator") if event.then == "operator" else {"reason": "stuck"}
        case Blocked():
            return _blocked(s, recorded, event)
        case CancelAsked():
            if s.status == "done" and s.message_seq <= s.outcome_seq:
                return {}  # nothing is left to cancel, and a later run is not meant
            if s.status not in ("waiting", "quarantined"):
                return {"cancel": True}
            in_doubt = s.call is not None and s.call.phase == "doubt"
            return {"cancel": True} | (_resting(s) if in_doubt else _ready())
        case DoneRefused():
            return _closed(s)
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


def _ready() -> dict[str, Any]:
    return {"status": "ready", "waiting_for": None}


def _waits(what: str) -> dict[str, Any]:
    return {"status": "waiting", "waiting_for": what}


def _spent(s: State, ms: int) -> dict[str, Any]:
    return {"used": s.used.plus(Usage(active_ms=ms))} if ms else {}


def _phase(s: State, phase: str, **change: Any) -> dict[str, Any]:
    assert s.call is not None, "an event about a call needs an open call"
    return {"call": s.call.model_copy(update={"phase": phase, **change})}


def _closed(
    s: State, *, count: int = 0, failed: int = 0, denied: int = 0, seq: int = 0, last: str = ""
) -> dict[str, Any]:
    """The open call ends: it is tallied and the task is ready for the next decision."""
    change: dict[str, Any] = {"call": None, "wait_key": None, **_ready()}
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
        change |= _closed(s, count=1, seq=seq)
    if event.kind == "message":
        change |= {"fingerprints": (), "message_seq": seq}
    return change


def _new_run(s: State, event: Reopened, recorded: Recorded) -> dict[str, Any]:
    return {
        **_ready(), "run": event.run, "opened": event.by, "opened_at": recorded.at, "used": Usage(), "extra": Usage(),
        "ends_at": None, "fingerprints": (), "tools": (), "failures": 0, "rejections": 0, "transport": 0,
        "children_born": 0, "reason": "", "outcome_seq": 0, "prefetched": 0,
    }  # fmt: skip


def _decided(s: State, seq: int, recorded: Recorded, event: Decided) -> dict[str, Any]:
    if s.call is not None and s.call.phase == "questioned":
        says = Explain.model_validate_json(event.args).text
        return _phase(s, "questioned", says=says) | {"rejections": 0, "used": s.used.plus(Usage(decisions=1))}
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
    change |= _waits("event" if wait.event else "timer")
    change["call"] = call.model_copy(update={"due": due})
    return change | {"wait_key": wait.event, "fingerprints": ()}


def _asked(s: State, recorded: Recorded, event: ApprovalAsked) -> dict[str, Any]:
    assert s.call is not None, "an approval needs an open call"
    asks = Verdict.model_validate_json(event.verdict)
    times = {"remind_at": asks.remind, "escalate_at": asks.escalate if asks.escalate_to else None}
    before = {name: recorded.at + after for name, after in times.items() if after and after < asks.deadline}
    return _phase(
        s, "asked", due=event.deadline, digest=event.digest, args=event.args or s.call.args, asked=recorded.seq,
        asks=asks, **before,
    )  # fmt: skip


OVER: dict[str, Any] = {"due": None, "remind_at": None, "escalate_at": None}


def _approval_moved(s: State, seq: int, event: ApprovalMoved) -> dict[str, Any]:
    assert s.call is not None, "an approval needs an open call"
    match event.to:
        case "reminded" | "escalated" | "more_info" | "explained":
            return _still_asked(s, s.call, event)
        case "answered":
            return _closed(s, count=1, seq=seq, last=canonical(event.result))
        case "approved":
            return _phase(s, "approved", grant=event.grant, **OVER) | _ready()
        case "approved_with_edits":
            return _phase(s, "approved", args=event.args, digest=event.digest, edited=True, **OVER) | _ready()
        case "edited":
            return (
                _phase(s, "chosen", args=event.args, editor=event.by or "", verdict="ask", previewed=0, **OVER)
                | _ready()
            )
        case "stale":
            return _phase(s, "chosen", stale=s.call.stale + 1, verdict="ask", grant="", previewed=0, **OVER) | _ready()
        case "expired" if event.then == "allow":
            return _phase(s, "approved", **OVER) | _ready()
        case "expired" if event.then == "park":
            return (
                _phase(s, "chosen", verdict="ask", previewed=0, **OVER)
                | _waits("operator")
                | {"reason": "approval_expired"}
            )
    return _closed(s, denied=1)


def _still_asked(s: State, call: OpenCall, event: ApprovalMoved) -> dict[str, Any]:
    if event.to == "more_info":
        longer = call.due + call.asks.deadline if call.due and call.asks else call.due
        return _phase(s, "questioned", **OVER | {"due": longer, "says": ""}) | _ready()
    if event.to == "explained":
        return _phase(s, "asked", says=event.comment) | _waits("approval") | {"rejections": 0}
    later = None if event.to == "escalated" else call.escalate_at
    return _phase(s, "asked", remind_at=None, escalate_at=later) | _waits("approval")


def _returned(s: State, seq: int, event: Returned) -> dict[str, Any]:
    change = _closed(s, count=1, seq=seq, last=canonical(event.result))
    change |= {"failures": 0} | _spent(s, event.ms)
    return change | ({"about": event.about} if event.about else {})


def _failed(s: State, event: Failed) -> dict[str, Any]:
    if event.call is not None:
        return _closed(s, failed=1) | {"failures": s.failures + 1} | _spent(s, event.ms)
    change = {"transport": s.transport + 1} | _spent(s, event.ms)
    if event.then == "operator":
        return change | _waits("operator") | {"reason": event.type}
    return change | _waits("retry") | {"due": event.not_before}


def _blocked(s: State, recorded: Recorded, event: Blocked) -> dict[str, Any]:
    if s.call is None or s.call.phase != "doubt":
        return _closed(s, denied=1)
    # what has begun stays in doubt; only sending it again has to wait
    again = recorded.at + FROZEN_AGAIN
    return _phase(s, "doubt", due=min(again, event.until or again)) | _waits("settle")


def _settled(s: State, event: Settled) -> dict[str, Any]:
    match event.how:
        case "happened":
            return _phase(s, "settled", due=None, result=canonical(event.result)) | _ready()
        case "not":
            return _closed(s, failed=1) | {"failures": s.failures + 1}
        case "abandoned":
            return _closed(s, failed=1) | {"reason": "in_doubt"}
        case "unknown":
            then = "find" if event.settle_at else "ask"
            return _phase(s, "doubt", doubt=then, due=event.settle_at) | _waits("settle")
    assert_never(event.how)


def _woke(s: State, event: Woke) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if "wait" in event.passed:
        change |= {"due": None} | (_ready() if s.waiting_for == "retry" else {})
    if s.call is not None and s.call.phase in ("asked", "questioned"):
        return change | (_ready() if set(event.passed) - {"wait"} else {})  # what is over, `decide` sees by its time
    if s.call is not None and any(name != "wait" for name in event.passed):
        if _waits_for_wait(s):
            return change | _closed(s, count=1, seq=s.seq + 1)
        change |= _phase(s, s.call.phase, due=None) | _ready()
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
        change |= _closed(s, count=1, seq=s.seq + 1)
    return change


def _resumed(s: State, event: Resumed) -> dict[str, Any]:
    if event.verb == "raise":
        more = Usage(decisions=event.decisions, tokens=event.tokens, usd=event.usd, active_ms=event.active_ms)
        change = {"extra": s.extra.plus(more), "ends_at": event.deadline or s.ends_at}
        return change | (_ready() if s.waiting_for == "budget" else {})
    reason = s.reason if s.reason == "in_doubt" else ""
    fresh = {"failures": 0, "rejections": 0, "transport": 0, "fingerprints": (), "reason": reason, "due": None}
    if s.status == "quarantined":
        return fresh | _resting(s)
    return fresh | (_ready() if s.waiting_for in ("operator", "retry") else {})


def _resting(s: State) -> dict[str, Any]:
    """What the open call is waiting for, or ready."""
    call = s.call
    if call is None or s.held:
        return _ready()
    if call.phase == "asked":
        return _waits("answer" if call.is_question else "approval")
    if call.phase == "doubt" and call.doubt != "same_key" and (call.due or call.doubt == "ask"):
        return _waits("settle")
    if _waits_for_wait(s):
        return _waits("event" if s.wait_key else "timer")
    return _waits("child") if any(child.call == call.seq for child in s.children) else _ready()
