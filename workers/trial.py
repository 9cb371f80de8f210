"""One trial of an agent: the real reducer, window and model; its tools answer as the case says, and nothing is changed.

No database, no effect, no waiting: an approval is given or refused at once, and what a tool would have looked up or
done stands in the case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twelvefold.canonical import plain
from twelvefold.decide import decided
from twelvefold.effects import AskModel, OpenPage, Prefetch, RunEffect, RunPreview, RunRead, RunWrite, Summarise
from twelvefold.errors import Rejection
from twelvefold.events import (
    ApprovalMoved,
    Arrived,
    Decided,
    Event,
    Failed,
    Folded,
    ModelAsked,
    Prefetched,
    Previewed,
    Rejected,
    Returned,
    Spent,
    Started,
)
from twelvefold.fold import fold
from twelvefold.ports import ModelReply
from twelvefold.provenance import Noted
from twelvefold.record import Recorded
from twelvefold.reducer import reduce
from twelvefold.replies import read_reply
from twelvefold.shape import Row
from twelvefold.state import OpenCall, State, Task
from twelvefold.text import clean
from twelvefold.window import UNSEEN_TYPES, Window, build

from .registry import Loaded

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TASK = "018f0000-0000-7000-8000-00000000e0a1"
MOST = 200
"""No trial takes so many moves; one that does goes round in circles."""
Ask = Callable[[Window, Task], ModelReply]


class Trial:
    """A task that lives in memory. `results` holds, by tool, what it returns: one value, or a list of them in turn."""

    def __init__(self, loaded: Loaded, ask: Ask, results: Mapping[str, Any], *, approve: bool, answer: str) -> None:
        self.loaded, self.agent, self._ask = loaded, loaded.agent, ask
        self._results = {name: list(v) if isinstance(v, list) else v for name, v in results.items()}
        self._approve, self._answer = approve, answer
        self.log: list[Recorded] = []
        state = State(id=TASK, tenant="trial")
        self.facts = Noted()
        self.task = Task(state, accepts=self.agent.accepts, read=self._read, facts=self.facts)

    @property
    def events(self) -> list[Event]:
        """What happened."""
        return [recorded.event for recorded in self.log]

    def play(self, message: Any) -> Trial:
        """From the message until nothing is wanted any more. Raises what the model raises, and ValueError for a message
        that the agent does not accept.
        """
        payload = self.agent.accepted.dump_python(self.agent.accepted.validate_python(message), mode="json")
        happened: Iterable[Event] = [Arrived(kind="message", source="trial", key="1", payload=plain(payload))]
        for _ in range(MOST):
            moved = reduce(self.agent, self.task, happened, self._now())
            self.task = replace(self.task, state=moved.state)
            self.log += moved.events
            self.facts.note(moved.facts)
            happened = self._next(moved.wants)
            if not happened:
                return self
        raise RuntimeError(f"The trial did not end after {MOST} moves.")

    def _now(self) -> datetime:
        return BEGIN + timedelta(seconds=len(self.log))

    def _read(self, seq: int) -> Mapping[str, Any]:
        return self.log[seq - 1].event.model_dump(mode="json", exclude_defaults=True)

    def _next(self, wants: Any) -> list[Event]:
        call = self.task.state.call
        if isinstance(wants, AskModel):
            return self._model(wants)
        if isinstance(wants, Prefetch):
            return [Prefetched(failed={look.__name__: "a trial" for look in self.agent.prefetch})]
        if isinstance(wants, Summarise):
            boundary = self.task.state.boundary
            return [Folded(first=boundary, last=wants.last, text="A trial keeps no summary.", hash="")]
        if call is None:
            return []
        if isinstance(wants, OpenPage):
            return [Failed(call=call.seq, type="NextPage", message="A trial has no further pages.")]
        if isinstance(wants, RunEffect):
            started = Started(call=call.seq, key=wants.key, attempt=wants.attempt, digest=call.digest)
            recorded = Recorded(self.task.state.seq + 1, self._now(), started)
            self.task = replace(self.task, state=fold(self.task.state, recorded))
            self.log.append(recorded)
        if isinstance(wants, RunRead | RunWrite | RunEffect):
            return [self._ran(call)]
        if isinstance(wants, RunPreview):
            return [Previewed(call=call.seq, shown="a trial")]
        return self._person(call)

    def _person(self, call: OpenCall) -> list[Event]:
        if call.phase != "asked":
            return []
        if call.is_question:
            return [ApprovalMoved(call=call.seq, to="answered", by="trial", result=self._answer)]
        return [ApprovalMoved(call=call.seq, to="approved" if self._approve else "rejected", by="trial")]

    def _ran(self, call: OpenCall) -> Event:
        given = self._results.get(call.tool)
        if isinstance(given, list):
            given = given.pop(0) if given else None
        if call.tool not in self._results or given is None:
            return Failed(call=call.seq, type="ToolError", message=f"There is no result of {call.tool} in this case.")
        adapter = self.agent.menu[call.tool].__spec__.result
        result = plain(adapter.dump_python(adapter.validate_python(given), mode="json"))
        return Returned(call=call.seq, result=result)

    def _model(self, want: AskModel) -> list[Event]:
        s = self.task.state
        rows = [
            Row(r.seq, type(r.event).__name__, r.event.version, r.event.data)
            for r in self.log
            if type(r.event).__name__ not in UNSEEN_TYPES
            and (r.seq >= want.boundary or r.seq in (s.opened, s.view.folded))
        ]
        window = build(self.agent, self.task, self.loaded.prompt, rows, want)
        reply = self._ask(window, self.task)
        spent = Spent(tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, ms=reply.duration_ms)
        asked = ModelAsked(model=reply.model, request=window.request, boundary=want.boundary, spent=spent)
        try:
            calls = read_reply(self.agent, reply)
        except Rejection as error:
            return [asked, Rejected(kind=error.kind, text=clean(str(error)), tool=error.tool)]
        return [asked, decided(calls[0], by="model")]


def called(events: Iterable[Event]) -> list[str]:
    """The tools that were decided, in order."""
    return [event.tool for event in events if isinstance(event, Decided)]


def as_text(value: Any) -> str:
    """An outcome as the text that a case looks into."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
