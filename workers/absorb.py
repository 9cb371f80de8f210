"""Absorb: what waits in the task's inbox and the deadlines that passed are folded before anything is carried out."""

from __future__ import annotations

from dataclasses import replace

from twelvefold.events import Event, Quarantined
from twelvefold.fold import fold
from twelvefold.inbox import event_of
from twelvefold.record import Recorded
from twelvefold.reducer import absorb as folded
from twelvefold.reducer import reduce

from .store import inbox
from .store.inbox import Pending
from .work import Runtime, Work

MOST_DEATHS = 3


def absorb(work: Work, run: Runtime) -> None:
    """Fold the inbox and the clock into the state, once a step. A task whose step killed three workers is quarantined
    instead; what waits in its inbox goes on waiting.
    """
    if work.cancelled:
        _fold_cancel(work, run)
    if work.absorbed:
        return
    deaths = work.held.attempts - 1
    if deaths < MOST_DEATHS:
        read_inbox(work, run)
    else:
        run.log.error("task_quarantined", task=work.held.id, agent=work.agent.name, deaths=deaths)
        work.move(reduce(work.agent, work.task, [Quarantined(reason=f"worker_lost x{deaths}")], work.now()))
    work.absorbed = True
    work.keep()


def read_inbox(work: Work, run: Runtime, *, again: bool = False) -> None:
    """Fold everything that waits and is not folded in this step yet."""
    rows = _news(work, run) if work.held.pending or again else []
    first = work.state.seq + 1
    moved = folded(work.agent, work.task, [_event(row) for row in rows], work.now())
    work.move(moved, [(row.id, first + i) for i, row in enumerate(rows)])


def _news(work: Work, run: Runtime) -> list[Pending]:
    known = {row for row, _ in work.place.arrivals}
    return [row for row in inbox.pending(run.db, work.held.id) if row.id not in known]


def _event(row: Pending) -> Event:
    return event_of(
        row.kind, source=row.source, key=row.key, payload=row.payload, sender=row.sender, wait_key=row.wait_key,
        cleaned=row.cleaned, proof=row.proof,
    )  # fmt: skip


def _fold_cancel(work: Work, run: Runtime) -> None:
    """Fold a cancel and decide nothing: what the effect brought back comes first."""
    for row in [row for row in _news(work, run) if row.kind == "cancel"]:
        recorded = Recorded(work.state.seq + 1, max(work.now(), work.state.at or work.now()), _event(row))
        work.place = replace(
            work.place,
            task=replace(work.task, state=fold(work.state, recorded)),
            events=(*work.place.events, recorded),
            arrivals=(*work.place.arrivals, (row.id, recorded.seq)),
        )
    work.cancelled = False
    work.keep()
