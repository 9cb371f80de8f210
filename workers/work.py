"""What one step has in its hands, and what every step of this process shares."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event
from time import monotonic
from typing import Any
from uuid import UUID

from twelvefold.agent import Agent
from twelvefold.effects import Rest, Want
from twelvefold.events import Event as Happening
from twelvefold.ports import Model
from twelvefold.provenance import Fact, Noted, merged
from twelvefold.record import Recorded
from twelvefold.reducer import Moved
from twelvefold.state import State, Task

from .lanes import Lanes
from .outside import Context
from .profiles import OPENAI, Profile
from .prompts import Piece
from .pulse import Pulse
from .registry import Loaded, Registry
from .roster import Roster
from .settings import Settings
from .store import grants, log
from .store.claims import Claimed
from .store.database import Database
from .store.facts import Stored
from .telemetry import Log
from .turnstile import Turnstile


@dataclass(frozen=True)
class Runtime:
    """Everything a process has one of. `worker` is the id of this incarnation; `stored` names texts that the database
    is known to have, so that they are not sent again.
    """

    worker: UUID
    db: Database
    registry: Registry
    lanes: Lanes
    pulse: Pulse
    model: Model
    scripted: bool
    settings: Settings
    roster: Roster
    log: Log
    stopping: Event = field(default_factory=Event)
    dice: random.Random = field(default_factory=random.Random)
    profile: Profile = OPENAI
    turnstile: Turnstile | None = None
    """What model calls pass through; a scripted model costs nothing and needs none."""
    stored: set[tuple[str, str]] = field(default_factory=set)


class LetGo(Exception):
    """The step must not go on here; the task goes back untouched."""


class Cancelled(Exception):
    """A cancel stands in the way of this commit, which would end the task otherwise."""


@dataclass(frozen=True)
class Place:
    """Where a step stands: what is folded, what is not written yet, what comes next."""

    task: Task
    wants: Want = field(default_factory=Rest)
    events: tuple[Recorded, ...] = ()
    arrivals: tuple[tuple[int, int], ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass
class Work:
    """One step under way: the claim, the place it has reached, and the place that a repeat starts from."""

    held: Claimed
    loaded: Loaded
    place: Place
    kept: Place
    happened: Sequence[Happening] | None = None
    absorbed: bool = False
    begun: bool = False
    cancelled: bool = False
    """A cancel came while the begun effect ran; it is folded before what the effect brought back."""
    last: bool = False
    writing: int = 0
    """The seq of the first event of a write whose answer was not seen."""
    texts: tuple[Piece, ...] = ()
    """What the request of this step was made of."""

    @property
    def agent(self) -> Agent:
        """The agent whose task this is."""
        return self.loaded.agent

    @property
    def task(self) -> Task:
        """The task as agent code sees it, everything folded so far."""
        return self.place.task

    @property
    def state(self) -> State:
        """The state, everything folded so far."""
        return self.place.task.state

    @property
    def next_up(self) -> str:
        """What comes next, as one word for operators."""
        return self.state.call.tool if self.state.call else "model"

    def now(self) -> datetime:
        """The database's clock at the claim and this process's monotonic time since."""
        return self.held.clock + timedelta(seconds=monotonic() - self.held.since)

    def move(self, moved: Moved, arrivals: Sequence[tuple[int, int]] = ()) -> None:
        """Take over what the reducer came to."""
        self.place = Place(
            replace(self.task, state=moved.state),
            moved.wants,
            self.place.events + moved.events,
            (*self.place.arrivals, *arrivals),
            merged(self.place.facts, moved.facts),
        )

    def keep(self) -> None:
        """A repeat starts from here."""
        self.kept = self.place

    def rewind(self) -> None:
        """Back to where a repeat starts."""
        self.place = self.kept


@dataclass(frozen=True)
class Seen:
    """What the task has seen, in events that are stored and in those of this very step."""

    new: Callable[[], tuple[Fact, ...]]
    stored: Stored

    def held(self, tokens: Collection[str], *, told: bool) -> Collection[str]:
        """See `Facts`."""
        return self._noted().held(tokens, told=told)

    def near(self, token: str) -> Sequence[str]:
        """See `Facts`."""
        return self._noted().near(token)

    def _noted(self) -> Noted:
        noted = Noted(self.stored)
        noted.note(self.new())
        return noted


def begin_work(run: Runtime, held: Claimed) -> Work:
    """A claimed task in hand. Agent code reads events through it, those of this very step included."""
    loaded = run.registry[held.agent]
    work: Work

    def read(seq: int) -> Mapping[str, Any]:
        for recorded in work.place.events:
            if recorded.seq == seq:
                found: Mapping[str, Any] = json.loads(recorded.event.data)
                return found
        return log.data_of(run.db, held.id, seq)

    task = Task(
        held.state, accepts=loaded.agent.accepts, read=read, peers=run.registry.budgets,
        grants=lambda: grants.holding(run.db, held), facts=Seen(lambda: work.place.facts, Stored(run.db, held.id)),
    )  # fmt: skip
    place = Place(task)
    work = Work(held, loaded, place, place)
    return work


def context(work: Work, run: Runtime, key: str, timeout: float) -> Context:
    """What code of the agent may use outside while it runs for this task, at most `timeout` seconds."""
    return Context(run.db, work.task, key, tuple(work.agent.hosts), run.settings.services, timeout)
