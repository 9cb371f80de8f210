"""reduce(agent, task, happened) -> Moved: fold what happened, decide, fold that, until the step has one want.

Pure: the same input gives the same output and the same hashes. Time arrives as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from .agent import Agent
from .controls import Explain
from .decide import decide
from .effects import Want
from .events import (
    ApprovalMoved,
    Arrived,
    Decided,
    Event,
    Failed,
    Rejected,
    Returned,
    Settled,
    Woke,
)
from .fold import fold
from .policy import vouched
from .provenance import Fact, Noted, facts_of
from .record import Recorded
from .state import State, Task

EXPLAIN = "A person asks about the call that waits for them. Answer with explain; nothing else can be done now."
MOST_TURNS = 64
"""A decision chain longer than this inside one step is a loop in our own code."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Where one step got to: the state, the new events in order, and what to carry out next."""

    state: State
    events: tuple[Recorded, ...]
    wants: Want
    facts: tuple[Fact, ...] = ()
    """What the events bring, each token once."""


def reduce(agent: Agent, task: Task, happened: Iterable[Event], at: datetime) -> Moved:
    """The task after what happened. Raises whatever the agent's own code raises; nothing is changed then."""
    events: list[Recorded] = []
    noted = Noted(task.facts)
    task = replace(_seeing(task, events), facts=noted)
    at = max(at, task.state.at or at)
    queue = list(happened)
    for _ in range(MOST_TURNS):
        while queue:
            event, seq = stands(task.state, queue.pop(0)), task.state.seq + 1
            if isinstance(event, Decided) and not event.digest:
                event = vouched(agent, task, event, seq)
            events.append(Recorded(seq, at, event))
            noted.note(facts_of(seq, event, task.state.call))
            task = replace(task, state=fold(task.state, events[-1]))
        coming = decide(agent, task, at)
        if not isinstance(coming, list):
            return Moved(task.state, tuple(events), coming, tuple(noted.rows.values()))
        queue = coming
    raise RuntimeError(f"The reducer did not settle after {MOST_TURNS} turns; the last event was {events[-1].event!r}.")


def absorb(agent: Agent, task: Task, arrived: Iterable[Event], now: datetime) -> Moved:
    """What waits in the inbox, then the deadlines that have passed, folded before anything is carried out."""
    moved = reduce(agent, task, arrived, now)
    passed = moved.state.passed(now)
    if not passed or moved.state.status != "waiting":
        return moved
    seen = Noted(task.facts)
    seen.note(moved.facts)
    now_seeing = replace(_seeing(task, moved.events), state=moved.state, facts=seen)
    woken = reduce(agent, now_seeing, [Woke(passed=passed)], now)
    seen.note(woken.facts)
    return Moved(woken.state, moved.events + woken.events, woken.wants, tuple(seen.rows.values()))


def _seeing(task: Task, events: Sequence[Recorded]) -> Task:
    """The task whose `read` also finds events that nobody has stored yet."""

    def read(seq: int) -> Mapping[str, Any]:
        new = next((r.event for r in events if r.seq == seq), None)
        return task.read(seq) if new is None else new.model_dump(mode="json", exclude_defaults=True)

    return replace(task, read=read)


def _questioned(state: State) -> bool:
    return state.call is not None and state.call.phase == "questioned"


def stands(state: State, event: Event) -> Event:
    """The event, or a note of it where the call it speaks of is no longer open: late news is kept, never folded."""
    match event:
        case Settled():
            phase = "doubt"
        case ApprovalMoved(to="stale"):
            phase = "approved"
        case ApprovalMoved(to="answered" | "approved" | "rejected") if state.call is not None and (
            state.call.is_question != (event.to == "answered")
        ):
            phase = "none"  # an answer approves nothing, and an approval answers nothing
        case ApprovalMoved(to="approved") if event.grant:
            phase = "chosen"
        case ApprovalMoved():
            phase = "questioned" if state.call is not None and state.call.phase == "questioned" else "asked"
        case Decided() if Explain.__spec__.name != event.tool and _questioned(state):
            return Rejected(kind="not_now", text=EXPLAIN, tool=event.tool)
        case Returned() | Failed(call=int()) if state.call is not None and state.call.kind == "read":
            # several reads of one reply are numbered before they are folded; a quarantine in between moves them
            return event if event.call == state.call.seq else event.model_copy(update={"call": state.call.seq})
        case _:
            return event
    if state.call is not None and state.call.seq == event.call and state.call.phase == phase:
        return event
    return Arrived(kind="control", source="late", key=type(event).__name__, payload={"call": event.call})
