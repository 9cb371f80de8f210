"""Test an agent without network, database or model: `play` its moves, look at where the task stands.

    task = play(agent, {"order_id": "ord_1"}, LookUp(order_id="ord_1"), gives(Refund(...), result), Done(outcome=...))

A call stands for the model deciding it; `gives`, `raises` and `doubt` also say what running it came to. An event such
as `CancelAsked(by="ann")` stands for itself. A move that does not fit what the task wants is an AssertionError that
says what it wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from .agent import Agent
from .canonical import plain
from .decide import decided, doubted
from .effects import AskModel, OpenPage, Record, RunEffect, RunPreview, RunRead, RunWrite, Summarise
from .errors import Rejection, ToolError
from .events import (
    ApprovalMoved,
    Arrived,
    Event,
    Failed,
    Folded,
    ModelAsked,
    Previewed,
    Rejected,
    Returned,
    Settled,
    Started,
)
from .fold import fold, fold_all
from .ports import ModelReply
from .provenance import Noted
from .record import Recorded
from .reducer import Moved, absorb, reduce
from .replies import read_reply
from .schema import arguments_of, stored_call
from .state import State, Task
from .tool import Tool

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TASK_ID = "018f0000-0000-7000-8000-000000000001"


@dataclass(frozen=True)
class Gives:
    """The call is decided and returns this result."""

    call: Tool[Any]
    result: Any


@dataclass(frozen=True)
class Raises:
    """The call is decided and raises this ToolError."""

    call: Tool[Any]
    error: ToolError


@dataclass(frozen=True)
class Doubts:
    """The call is decided and begun, and its answer is lost."""

    call: Tool[Any]


@dataclass(frozen=True)
class Later:
    """Time passes."""

    by: timedelta


@dataclass(frozen=True)
class Says:
    """The model answers with prose, or a person writes when the task does not ask the model."""

    text: str


@dataclass(frozen=True)
class Decides:
    """A person approves or rejects the call that waits."""

    approved: bool
    by: str = "somebody@example.org"


@dataclass(frozen=True)
class Settles:
    """The doubt about the open call is settled."""

    happened: bool
    result: Any = None


Move = Tool[Any] | Event | Gives | Raises | Doubts | Later | Says | Decides | Settles


def gives(call: Tool[Any], result: Any) -> Gives:
    """Decide the call; it returns the result."""
    return Gives(call, result)


def raises(call: Tool[Any], error: ToolError) -> Raises:
    """Decide the call; it raises."""
    return Raises(call, error)


def doubt(call: Tool[Any]) -> Doubts:
    """Decide and begin the call; nobody learns whether it happened."""
    return Doubts(call)


def later(**duration: float) -> Later:
    """Let time pass, as in later(hours=25)."""
    return Later(timedelta(**duration))


def says(text: str) -> Says:
    """Prose: from the model where it is asked, else a message from a person."""
    return Says(text)


def approves(by: str = "somebody@example.org") -> Decides:
    """A person approves the call that waits."""
    return Decides(True, by)


def rejects(by: str = "somebody@example.org") -> Decides:
    """A person rejects the call that waits."""
    return Decides(False, by)


def happened(result: Any) -> Settles:
    """The effect in doubt did happen, with this result."""
    return Settles(True, result)


def did_not_happen() -> Settles:
    """The effect in doubt did not happen."""
    return Settles(False)


class Played(Task):
    """Where a played task stands, with its whole log."""

    log: tuple[Recorded, ...] = ()
    wants: Any = None
    agent: Agent

    @property
    def status(self) -> str:
        """The status, as in the task row."""
        return self.state.status

    @property
    def waiting(self) -> Tool[Any] | None:
        """The call that waits for a person, an event or a settlement; None when there is none."""
        call = self.state.call
        if call is None or self.state.status != "waiting":
            return None
        return stored_call(self.agent.menu, self.agent.renamed, call.tool, call.args)

    @property
    def outcome(self) -> Any:
        """The outcome as the agent's `returns`; None while the task has none."""
        ended = [r.event for r in self.log if type(r.event).__name__ == "Finished"]
        value = getattr(ended[-1], "outcome", None) if ended else None
        return None if value is None else self.agent.returns.model_validate(value)


class _Player:
    def __init__(self, agent: Agent, event: Any) -> None:
        self.agent, self.now, self.log = agent, EPOCH, list[Recorded]()
        self.facts = Noted()
        self.task = Task(
            State(id=TASK_ID, tenant="test"), accepts=agent.accepts, read=self._read, facts=self.facts
        )  # fmt: skip
        payload = agent.accepted.dump_python(agent.accepted.validate_python(event), mode="json")
        self.feed([Arrived(kind="message", source="test", key="1", payload=plain(payload))])

    def _read(self, seq: int) -> Mapping[str, Any]:
        return self.log[seq - 1].event.model_dump(mode="json")

    def feed(self, events: Iterable[Event]) -> None:
        self.take(reduce(self.agent, self.task, events, self.now))

    def take(self, moved: Moved) -> None:
        self.task = replace(self.task, state=moved.state)
        self.log += moved.events
        self.facts.note(moved.facts)
        self.wants = moved.wants
        call = self.task.state.call
        if isinstance(self.wants, RunPreview) and call is not None:
            self.feed([Previewed(call=call.seq, shown="played")])
        if isinstance(self.wants, Summarise):
            self.feed([Folded(first=self.task.state.boundary, last=self.wants.last, text="played", hash="")])

    def only_fold(self, event: Event) -> None:
        recorded = Recorded(self.task.state.seq + 1, self.now, event)
        self.task = replace(self.task, state=fold(self.task.state, recorded))
        self.log.append(recorded)

    def ask(self, *answers: Event) -> None:
        assert isinstance(self.wants, AskModel), f"The model is not asked now; the task wants {self.wants}."
        view = {"boundary": self.wants.boundary, "eased": self.wants.eased}
        self.feed([ModelAsked.model_validate({"model": "test", "request": "", **view}), *answers])

    def decide(self, call: Tool[Any]) -> None:
        name = call.__spec__.name
        assert name in self.agent.menu, f"{name} is not on the menu: {', '.join(self.agent.menu)}."
        self.ask(decided(self.agent.menu[name].model_validate(call.model_dump()), by="model"))

    def begin(self, call: Tool[Any]) -> int:
        open_call = self.task.state.call
        assert open_call is not None, f"No call is open; the task wants {self.wants}."
        same = (open_call.tool, open_call.args) == (call.__spec__.name, arguments_of(call))
        assert same, f"Another call is open: {open_call.tool} {open_call.args}."
        if isinstance(self.wants, RunEffect):
            key, attempt = self.wants.key, self.wants.attempt
            self.only_fold(Started(call=open_call.seq, key=key, attempt=attempt, digest=open_call.digest))
        else:
            wants = f"it is {open_call.phase}, the verdict was {open_call.verdict}, the task wants {self.wants}"
            assert isinstance(self.wants, RunRead | RunWrite | OpenPage), f"The call may not run now: {wants}."
        return open_call.seq

    def run(self, call: Tool[Any], ends: Any) -> None:
        if isinstance(self.wants, AskModel):
            self.decide(call)
        seq = self.begin(call)
        if isinstance(ends, Gives):
            adapter = call.__spec__.result
            result = plain(adapter.dump_python(adapter.validate_python(ends.result), mode="json"))
            self.feed([Returned(call=seq, result=result)])
        elif isinstance(ends, Raises):
            error = ends.error
            told = {"affected": error.affected, "suggestion": error.suggestion, "retry_after": error.retry_after}
            self.feed(
                [Failed.model_validate({"call": seq, "type": type(error).__name__, "message": str(error), **told})]
            )
        else:
            assert self.task.state.call is not None
            self.feed([doubted(self.agent, self.task.state.call, self.now, "played")])

    def later(self, by: timedelta) -> None:
        self.now += by
        self.take(absorb(self.agent, self.task, (), self.now))

    def say(self, text: str) -> None:
        if not isinstance(self.wants, AskModel):
            payload: dict[str, Any] = {"text": text, "subject": "", "sender": "somebody@example.org"}
            key = str(self.task.state.seq)
            self.feed([Arrived(kind="message", source="test", key=key, payload=payload)])
            return
        try:
            read_reply(self.agent, ModelReply(text=text))
        except Rejection as error:
            self.ask(Rejected(kind=error.kind, text=str(error), tool=error.tool))

    def person(self, move: Decides) -> None:
        call = self.task.state.call
        assert call is not None and call.phase == "asked", f"Nothing waits for a person; it wants {self.wants}."
        to = "approved" if move.approved else "rejected"
        self.feed([ApprovalMoved.model_validate({"call": call.seq, "to": to, "by": move.by})])

    def settle(self, move: Settles) -> None:
        call = self.task.state.call
        assert call is not None and call.phase == "doubt", f"Nothing is in doubt; the task wants {self.wants}."
        how = "happened" if move.happened else "not"
        self.feed([Settled.model_validate({"call": call.seq, "how": how, "by": "test", "result": plain(move.result)})])
        if isinstance(self.wants, Record):
            self.feed([Returned(call=call.seq, result=plain(move.result))])


def play(agent: Agent, event: Any, *moves: Move) -> Played:
    """The task after the event and the moves. Nothing runs: results are what the moves say."""
    player = _Player(agent, event)
    for move in moves:
        match move:
            case Gives() | Raises() | Doubts():
                player.run(move.call, move)
            case Later():
                player.later(move.by)
            case Says():
                player.say(move.text)
            case Decides():
                player.person(move)
            case Settles():
                player.settle(move)
            case Event():
                player.feed([move])
            case _:
                player.decide(move)
    return _played(player)


def _played(player: _Player) -> Played:
    played = Played(player.task.state, player.task.accepts, player.task.read)
    for name, value in (("log", tuple(player.log)), ("wants", player.wants), ("agent", player.agent)):
        object.__setattr__(played, name, value)
    return played


def replay(log: Iterable[Recorded], *, task_id: str = TASK_ID, tenant: str = "test") -> State:
    """The state that a log folds to; no agent code is asked."""
    return fold_all(State(id=task_id, tenant=tenant), log)
