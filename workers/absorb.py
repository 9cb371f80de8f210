"""Absorb: what waits in the task's inbox and the deadlines that passed are folded before anything is carried out."""

from __future__ import annotations

from psycopg import OperationalError
from sqlalchemy.exc import DBAPIError

from twelvefold.errors import Stale, Unreadable
from twelvefold.events import Quarantined
from twelvefold.inbox import event_of
from twelvefold.reducer import absorb as folded
from twelvefold.reducer import reduce

from .store import inbox
from .telemetry import kind_of
from .work import Runtime, Work

MOST_DEATHS = 3
PASSES = (OperationalError, DBAPIError, Stale, Unreadable)


def absorb(work: Work, run: Runtime) -> None:
    """Fold the inbox and the clock into the state. A task whose step killed three workers is quarantined instead,
    and so is one whose agent's own code fails here; what waits in its inbox goes on waiting.
    """
    if work.held.attempts > MOST_DEATHS:
        _quarantine(work, run, f"worker_lost x{work.held.attempts - 1}")
    else:
        try:
            read_inbox(work, run)
        except PASSES:
            raise
        except Exception as error:
            work.rewind()
            _quarantine(work, run, kind_of(error))
    work.keep()


def _quarantine(work: Work, run: Runtime, reason: str) -> None:
    run.log.error("task_quarantined", task=work.held.id, agent=work.agent.name, reason=reason)
    work.move(reduce(work.agent, work.task, [Quarantined(reason=reason)], work.now()))


def read_inbox(work: Work, run: Runtime, *, again: bool = False) -> None:
    """Fold everything that waits and is not folded in this step yet."""
    rows = inbox.pending(run.db, work.held.id) if work.held.pending or again else []
    known = {row for row, _ in work.place.arrivals}
    rows = [row for row in rows if row.id not in known]
    events = [
        event_of(r.kind, source=r.source, key=r.key, payload=r.payload, sender=r.sender, wait_key=r.wait_key,
                 cleaned=r.cleaned)
        for r in rows
    ]  # fmt: skip
    first = work.state.seq + 1
    moved = folded(work.agent, work.task, events, work.now())
    work.move(moved, [(row.id, first + i) for i, row in enumerate(rows)])
