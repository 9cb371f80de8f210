"""What the tasks of the adversarial machine ask about: a Write and an Effect under a rule that each case chooses, an
outside that keeps what it did, and a worker that dies in the middle of it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tests.agents.notes.tables import NoteRow
from twelvefold import AskHuman, Done, Effect, Task, Text, Verdict, Write, ask
from twelvefold.controls import Explain
from twelvefold.tool import Ctx, Tool

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

WHICH = {"reason": "Which?", "format": "choice", "choices": ["Refund", "Replace"], "target": "refund-ops"}


class Died(BaseException):
    """The worker is gone, as after a SIGKILL: nothing of the step runs any more."""


class Outside:
    """A service that honours keys: what it did, by key. `deaths` are the moments at which the next callers die."""

    def __init__(self) -> None:
        self.did: dict[str, list[str]] = defaultdict(list)
        self.deaths: list[str] = []

    def fire(self, key: str, item: str) -> None:
        """Do it, once for each key. Raises Died before or after."""
        death = self.deaths.pop() if self.deaths else ""
        if death == "before":
            raise Died
        self.did[key].append(item)
        if death == "after":
            raise Died


OUTSIDE = Outside()


def judged(rule: str) -> Verdict:
    """The verdict that a case wants."""
    return ask("refund-ops", "it is ready", **json.loads(rule))


class Sign(Write[str]):
    """Sign for an item. Use when it is ready."""

    item: str = Field(examples=["a box of pears"])
    rule: str = Field(examples=["{}"])

    def approval(self, task: Task) -> Verdict:
        """Somebody always decides."""
        return judged(self.rule)

    def write(self, db: Session) -> str:
        """A row for what was signed."""
        db.add(NoteRow(text=self.item, task_id=""))
        db.flush()
        return self.item


class Fire(Effect[str], doubt="same_key"):
    """Fire for an item. Use when it is ready."""

    item: str = Field(examples=["a box of pears"])
    rule: str = Field(examples=["{}"])

    def approval(self, task: Task) -> Verdict:
        """Somebody always decides."""
        return judged(self.rule)

    def run(self, ctx: Ctx) -> str:
        """Do it outside."""
        OUTSIDE.fire(ctx.key, self.item)
        return self.item


TOOLS: dict[str, type[Sign] | type[Fire]] = {"sign": Sign, "fire": Fire}


def script(task: Task) -> Tool[Any]:
    """The calls that the opening message describes, one after the other; whoever asks back hears why."""
    if Explain.offered(task):
        return Explain(text="because it is ready")
    wanted = json.loads(task.event.text)
    calls = [_call(name, item, wanted["rule"]) for name, item in wanted["calls"]]
    known = task.state.tally(calls[0].__spec__.name)
    done = known.count + known.failed + known.denied
    return calls[done] if done < len(calls) else Done(outcome=Text(text="over"))


def _call(name: str, item: str, rule: dict[str, Any]) -> Tool[Any]:
    return AskHuman(**WHICH) if name == "ask" else TOOLS[name](item=item, rule=json.dumps(rule))  # type: ignore[arg-type]
