"""Commit: one transaction for task row, events, business rows, approvals, outbox and children; then the doorbell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from psycopg import OperationalError, errors
from sqlalchemy.exc import DBAPIError

from twelvefold.errors import Conflict, Stale, Unreadable
from twelvefold.events import Quarantined, hold
from twelvefold.reducer import reduce

from .outgoing import children, letters
from .store import approvals, waits
from .store.claims import release
from .store.commits import Batch, was_written, write
from .store.database import Connection
from .telemetry import kind_of
from .unit import Unit
from .work import Runtime, Work

REPEATS = 5
PATIENCE_S = 60.0
"""So long a step waits for the database to come back before the claim is given up."""
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure, Conflict)


def commit(work: Work, unit: Unit, run: Runtime) -> str:
    """Write everything this step came to. Returns the task's new status. Raises Stale when the claim is lost."""
    if work.paused and not work.place.events:
        release(run.db, work.held, soon=False)
        return "paused"
    batch = Batch(
        state=work.state, events=work.place.events, arrivals=work.place.arrivals, letters=letters(work),
        children=children(work), floor=work.agent.version, agent_version=work.loaded.version,
    )  # fmt: skip
    key = waits.opened_key(work.place.events, work.state)
    if unit.is_open or key or approvals.concerned(batch.events):
        status = _write(unit.connection(), work, batch, key)
    else:
        with run.db.connection() as connection:
            status = _write(connection, work, batch, None)
    return status


def _write(connection: Connection, work: Work, batch: Batch, wait_key: str | None) -> str:
    if work.writing and was_written(connection, work.held, work.writing):
        return work.state.status
    if batch.events:
        work.writing = batch.events[0].seq
    if wait_key:
        waits.lock(connection, work.held.tenant, wait_key)
    status = write(connection, work.held, batch)
    if status is None:
        raise Stale
    approvals.apply(connection, work.held, batch.events)
    if wait_key and waits.adopt(connection, work.held, wait_key):
        status = "ready"
    return status


@contextmanager
def quarantining(work: Work, unit: Unit, run: Runtime) -> Iterator[None]:
    """What our own code cannot digest is quarantined; the tool's rows are undone and what happened is held back.

    Deadlocks, lost connections, conflicts and stale claims pass through: they repeat or end the step.
    """
    try:
        yield
    except Exception as error:
        if _passes(error) and not (isinstance(error, Conflict) and work.last):
            raise
        unit.undo()
        work.rewind()
        held = hold(list(work.happened or ()))
        run.log.error("task_quarantined", task=work.held.id, agent=work.agent.name, error=kind_of(error))
        quarantined = Quarantined(reason=kind_of(error), held=held or None)
        work.move(reduce(work.agent, work.task, [quarantined], work.now()))


def _passes(error: Exception) -> bool:
    inner = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(inner, (*TRANSIENT, OperationalError, Stale, Unreadable)) and not isinstance(
        inner, errors.QueryCanceled | errors.LockNotAvailable
    )


class Chance:
    """One try at a commit: swallows what may be repeated, after a short wait, unless it is the last."""

    def __init__(self, work: Work, run: Runtime) -> None:
        self.work, self.run = work, run

    def __enter__(self) -> None:
        self.work.rewind()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        inner = error.orig if isinstance(error, DBAPIError) else error
        if not isinstance(inner, (*TRANSIENT, OperationalError)) or self.work.last:
            return False
        self.run.log.warning("commit_repeated", task=self.work.held.id, error=kind_of(inner))
        if isinstance(inner, OperationalError) and not isinstance(inner, TRANSIENT):
            _wait_for(self.run)
        else:
            sleep(self.run.dice.uniform(0, 0.05))
        return True


def chances(work: Work, run: Runtime) -> Iterator[Chance]:
    """Up to five tries at a commit with the same happening; the last one's error is raised."""
    for number in range(1, REPEATS + 1):
        work.last = number == REPEATS
        yield Chance(work, run)


def _wait_for(run: Runtime) -> None:
    """Wait until the database answers again, at most PATIENCE_S."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        try:
            run.db.rows("SELECT 1")
            return
        except (OperationalError, DBAPIError):
            sleep(run.dice.uniform(0.1, 0.5))
