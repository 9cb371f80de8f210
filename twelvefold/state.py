"""The state of a task: bounded, frozen, plain data; and the task as an agent's code sees it.

The state holds counters, usage, the pending call, what is waited for, deadlines, the last fingerprints, per tool its
counts and last result of the run, and the fold boundary. Never the history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter

from .bindings import Destination
from .budget import Budget, Usage
from .grants import Grant
from .ports import Facts
from .questions import AskHuman
from .tool import Kind, Tool
from .verdict import Verdict

STATE_VERSION = 1
INLINE_RESULT = 1000
"""A last result longer than this many characters of JSON is kept by its seq alone."""

Status = Literal["ready", "waiting", "done", "failed", "cancelled", "quarantined"]
WaitingFor = Literal["approval", "answer", "event", "timer", "child", "retry", "settle", "budget", "operator"]
Phase = Literal["chosen", "asked", "questioned", "approved", "begun", "doubt", "settled"]
R = TypeVar("R")


class Frozen(BaseModel):
    """Frozen plain data."""

    model_config = ConfigDict(frozen=True)


class OpenCall(Frozen):
    """The call in hand. `seq` of its Decided is its id; `due` is the deadline of its phase."""

    seq: int
    tool: str
    args: str
    kind: Kind
    phase: Phase = "chosen"
    verdict: Literal["auto", "ask", "deny"] = "auto"
    digest: str = ""
    key: str = ""
    attempt: int = 0
    doubt: Literal["", "ask", "find", "same_key"] = ""
    stale: int = 0
    due: datetime | None = None
    result: str = ""
    asked: int = 0
    """The seq of the question about it, `asks` is its verdict, with the times of the next letters about it."""
    asks: Verdict | None = None
    remind_at: datetime | None = None
    escalate_at: datetime | None = None
    grant: str = ""
    previewed: int = 0
    """The seq of the preview that the question shows; `fingerprint` is that of what it looked at."""
    fingerprint: str = ""
    says: str = ""
    """What the agent answered to whom it asked."""
    editor: str = ""
    edited: bool = False
    """An approval of arguments that the rule has not seen yet."""

    @property
    def is_question(self) -> bool:
        """Whether a person is to answer it, rather than to approve it."""
        return self.tool == AskHuman.__spec__.name


class Tally(Frozen):
    """Of one tool in this run: how often it returned, failed, was denied, and its last result."""

    tool: str
    count: int = 0
    failed: int = 0
    denied: int = 0
    last_seq: int = 0
    last: str = ""


class Child(Frozen):
    """A child task that has not returned yet; `call` is the Delegate it was born from."""

    id: str
    agent: str
    call: int = 0


class View(Frozen):
    """What of the log stands in the window, and what may give way; `room` keeps it."""

    folded: int = 0
    """The seq of the summary that stands for what lies below the boundary."""
    eased: tuple[int, int] = (0, 0)
    turns: tuple[int, ...] = ()
    """The last decisions, and of the last results the calls."""
    results: tuple[int, ...] = ()
    looks: tuple[tuple[str, int], ...] = ()
    """The latest result of each Read, by a mark of its arguments; the errors of each tool that nothing resolved yet."""
    errors: tuple[tuple[str, int], ...] = ()
    spare: tuple[tuple[int, str, int], ...] = ()
    """(seq, rule, by): what may give way, and to which event."""
    paged: int = 0
    """An event that was not shown whole."""
    prefix: str = ""
    breaks: int = 0
    """How often the window did not begin as the one before."""
    squeeze: bool = False
    """The last turns give way too: an operator said so, or the provider that it was too much."""
    overflows: int = 0
    """How often in a row the provider said so."""


class State(Frozen):
    """Everything the reducer needs to know, as one bounded value."""

    id: str = ""
    tenant: str = ""
    seq: int = 0
    at: datetime | None = None
    run: int = 1
    status: Status = "ready"
    waiting_for: WaitingFor | None = None
    opened: int = 0
    opened_at: datetime | None = None
    boundary: int = 1
    window: tuple[tuple[int, int], ...] = ()
    view: View = View()
    call: OpenCall | None = None
    wait_key: str | None = None
    due: datetime | None = None
    used: Usage = Usage()
    lifetime: Usage = Usage()
    extra: Usage = Usage()
    ends_at: datetime | None = None
    """The absolute end of this run, where an operator set one in the place of the budget's."""
    budget: Budget | None = None
    delivery: tuple[Destination, ...] = ()
    """Where the results of this task go when its opener chose; else where the agent says."""
    fingerprints: tuple[str, ...] = ()
    tools: tuple[Tally, ...] = ()
    failures: int = 0
    rejections: int = 0
    transport: int = 0
    children: tuple[Child, ...] = ()
    children_born: int = 0
    depth: int = 0
    parent: str = ""
    parent_run: int = 0
    cancel: bool = False
    about: str | None = None
    held: int = 0
    outcome_seq: int = 0
    prefetched: int = 0
    message_seq: int = 0
    tainted: int = 0
    """The first event with text of an unproven sender. It stays while the task lives, as what was read does."""
    reason: str = ""

    def tally(self, tool: str) -> Tally:
        """The counts of a tool by name, all zero when it was never called."""
        return next((t for t in self.tools if t.tool == tool), Tally(tool=tool))

    def deadlines(self) -> tuple[tuple[str, datetime], ...]:
        """What is waited for until when, earliest first."""
        found: list[tuple[str, datetime]] = [("wait", self.due)] if self.due else []
        if self.call:
            times = [(self.call.phase, self.call.due), ("remind", self.call.remind_at),
                     ("escalate", self.call.escalate_at)]  # fmt: skip
            found += [(name, at) for name, at in times if at]
        return tuple(sorted(found, key=lambda pair: pair[1]))

    def due_at(self) -> datetime | None:
        """The least deadline; None when only an arrival can wake the task."""
        rows = self.deadlines()
        return rows[0][1] if rows else None

    def passed(self, now: datetime) -> tuple[str, ...]:
        """The deadlines that lie at or before now, in order."""
        return tuple(name for name, at in self.deadlines() if at <= now)


def no_events(seq: int) -> Any:
    """A reader for a task whose events cannot be read."""
    raise LookupError(f"Event {seq} cannot be read here.")


class NoFacts:
    """The facts of a task whose events cannot be read."""

    def held(self, tokens: Collection[str], *, told: bool) -> Collection[str]:
        """Raises LookupError."""
        raise LookupError("What this task has seen cannot be looked up here.")

    def near(self, token: str) -> Sequence[str]:
        """Raises LookupError."""
        raise LookupError("What this task has seen cannot be looked up here.")


@dataclass(frozen=True)
class Task:
    """The task as an agent's code sees it: questions about this run, no way to change anything.

    `read` gives the data of an event by seq; the shell reads the log, tests read their own list.
    """

    state: State
    accepts: Any = None
    read: Callable[[int], Mapping[str, Any]] = field(default=no_events, repr=False)
    peers: Mapping[str, Budget] = field(default_factory=dict, repr=False)
    grants: Callable[[], Sequence[Grant]] = field(default=tuple, repr=False)
    """What people approved for more than one call; looked up only when a call would be asked about."""
    facts: Facts = field(default_factory=NoFacts, repr=False)
    """What it has seen; looked up only when a model writes an id or reports something."""

    @property
    def id(self) -> str:
        """The task's id."""
        return self.state.id

    @property
    def tenant(self) -> str:
        """Whose task it is."""
        return self.state.tenant

    @property
    def decisions(self) -> int:
        """Decisions taken in this run."""
        return self.state.used.decisions

    @property
    def event(self) -> Any:
        """What opened this run, as the agent's `accepts`."""
        payload = self.read(self.state.opened).get("payload")
        return payload if self.accepts is None else TypeAdapter(self.accepts).validate_python(payload)

    def prefetched(self, look: Callable[..., Any]) -> Any:
        """What this prefetch function found for this run, as plain data; None while or when it found nothing."""
        if not self.state.prefetched:
            return None
        return (self.read(self.state.prefetched).get("found") or {}).get(look.__name__)

    def count(self, tool: type[Tool[Any]]) -> int:
        """How often the tool returned in this run."""
        return sum(tally.count for tally in self._tallies(tool))

    def did(self, tool: type[Tool[Any]]) -> bool:
        """Whether the tool returned at least once in this run."""
        return self.count(tool) > 0

    def denied(self, tool: type[Tool[Any]]) -> bool:
        """Whether a call of the tool was denied or rejected in this run."""
        return any(tally.denied for tally in self._tallies(tool))

    @property
    def answered(self) -> bool:
        """Whether a person answered a question in this run; what they said is `last(AskHuman)`."""
        return self.did(AskHuman)

    def last(self, tool: type[Tool[R]]) -> R | None:
        """The tool's last result in this run, None when there is none."""
        tally = max(self._tallies(tool), key=lambda t: t.last_seq)
        if not tally.count:
            return None
        adapter = tool.__spec__.result
        if tally.last:
            return cast(R, adapter.validate_json(tally.last))
        return cast(R, adapter.validate_python(self.read(tally.last_seq).get("result")))

    def _tallies(self, tool: type[Tool[Any]]) -> list[Tally]:
        """Of the tool under its name of today and its former ones: a run may live through a renaming."""
        return [self.state.tally(name) for name in (tool.__spec__.name, *tool.__spec__.was)]


def unused(limit: Usage, used: Usage) -> Usage:
    """What is left of a limit, never below zero."""
    return Usage(
        decisions=max(0, limit.decisions - used.decisions),
        tokens=max(0, limit.tokens - used.tokens),
        usd=max(Decimal(0), limit.usd - used.usd),
        active_ms=max(0, limit.active_ms - used.active_ms),
    )
