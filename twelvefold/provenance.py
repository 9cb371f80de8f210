"""What each event brings into a task: facts, noted as the reducer folds and stored with the commit.

What a model writes is never its own source: of its calls only those that changed something count, once they have
succeeded, and only for what may be reported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from .events import ApprovalMoved, Arrived, ChildReturned, Event, Failed, Prefetched, Previewed, Returned
from .facts import MORE, MOST_FACTS, tokens_in
from .memory import Recall, Remember
from .ports import Facts
from .state import OpenCall


class Fact(NamedTuple):
    """A token that stands in event `seq`. `known`: it may be used as an id; `told`: it may be reported."""

    token: str
    seq: int
    known: bool
    told: bool


@dataclass
class Noted:
    """Facts that are noted but not stored yet, in front of those that are stored."""

    stored: Facts | None = None
    rows: dict[str, Fact] = field(default_factory=dict)

    def note(self, facts: Iterable[Fact]) -> None:
        """Take up facts; of several about one token the first is kept, for all that any of them allows."""
        for fact in facts:
            old = self.rows.get(fact.token, fact)
            self.rows[fact.token] = old._replace(known=old.known or fact.known, told=old.told or fact.told)

    def held(self, tokens: Collection[str], *, told: bool) -> set[str]:
        """Those of the tokens that may be used, or reported."""
        rows = (self.rows.get(token) for token in tokens)
        found = {row.token for row in rows if row and (row.told if told else row.known)}
        rest = [token for token in tokens if token not in found]
        return found | set(self.stored.held(rest, told=told) if self.stored and rest else ())

    def near(self, token: str) -> list[str]:
        """Ids that could have been meant."""
        noted = [row.token for row in self.rows.values() if row.known]
        return noted + list(self.stored.near(token) if self.stored else ())


def merged(first: tuple[Fact, ...], second: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """The facts of both, each token once."""
    if not first or not second:
        return first or second
    noted = Noted()
    noted.note([*first, *second])
    return tuple(noted.rows.values())


def facts_of(seq: int, event: Event, call: OpenCall | None) -> list[Fact]:
    """What an event brings; `call` is the one that was open before it. What only gives a call's own arguments back, as
    an error or a preview does, brings nothing by that.
    """
    match event:
        case Arrived(kind="message" | "event"):
            return _facts(seq, event.payload)
        case Prefetched():
            return _facts(seq, event.found, told=True)
        case Returned(check=""):
            return _returned(seq, event, call)
        case Returned() | Failed() | Previewed():
            echoed = set(tokens_in(_args(call)))
            return [fact for fact in _facts(seq, _said(event)) if fact.token not in echoed]
        case ApprovalMoved():
            edited = json.loads(event.args) if event.args else None
            return [*_facts(seq, event.result, told=True), *_facts(seq, [event.comment, edited])]
        case ChildReturned():
            return _facts(seq, event.result, told=event.status == "done")
    return []


def _returned(seq: int, event: Returned, call: OpenCall | None) -> list[Fact]:
    if call is not None and call.kind == "control":
        return []  # a page shows again what other events brought
    tool = call.tool if call is not None else ""
    found = _facts(seq, [event.result, event.shown], told=tool != Recall.__spec__.name)
    changed = call is not None and call.kind in ("write", "effect") and tool != Remember.__spec__.name
    return found + (_facts(seq, _args(call), known=False, told=True) if changed else [])


def _said(event: Returned | Failed | Previewed) -> Any:
    match event:
        case Returned():
            return [event.result, event.shown]
        case Failed():
            return [event.message, event.suggestion]
    return event.shown


def _args(call: OpenCall | None) -> Any:
    return json.loads(call.args) if call is not None else None


def _facts(seq: int, value: Any, *, known: bool = True, told: bool = False) -> list[Fact]:
    """Facts of a value, each once. Where there are more than can be kept, a last one says so."""
    tokens = dict.fromkeys(islice(tokens_in(value), MOST_FACTS * 10))
    kept = list(islice(tokens, MOST_FACTS))
    more = [f"{MORE}{seq}"] if len(tokens) > MOST_FACTS else []
    return [Fact(token, seq, known, told) for token in [*kept, *more]]
