"""Chances: a commit is tried up to five times with the same happening, and a claim is never left lying about.

What may be repeated is a deadlock, a serialization failure, a conflict of our own rows and a lost connection; whether
the try before went through after all is told by the writer in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import TypeVar

from psycopg import OperationalError, errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from twelvefold.errors import Conflict

from .store import claims
from .store.commits import landed_as
from .telemetry import kind_of
from .work import Cancelled, Runtime, Work

REPEATS = 5
PATIENCE_S = 60.0
"""So long a step waits for the database to come back before the claim is given up."""
MOVED = (errors.DeadlockDetected, errors.SerializationFailure, Conflict, Cancelled)
TOO_SLOW = (errors.QueryCanceled, errors.LockNotAvailable)
LOST = (OperationalError, errors.IdleInTransactionSessionTimeout, PoolTimeout)
T = TypeVar("T")


def cause(error: BaseException) -> BaseException:
    """The driver's own error where SQLAlchemy wrapped it."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def moved(error: BaseException) -> bool:
    """Whether others were in the way: the same again may go through at once."""
    return isinstance(cause(error), MOVED)


def lost(error: BaseException) -> bool:
    """Whether the database could not be reached, or left us in the middle."""
    inner = cause(error)
    return isinstance(inner, LOST) and not isinstance(inner, MOVED + TOO_SLOW)


class Chance:
    """One try at a commit: swallows what may be repeated, after a short wait, unless it is the last."""

    def __init__(self, work: Work, run: Runtime) -> None:
        self.work, self.run = work, run

    def __enter__(self) -> None:
        self.work.rewind()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or self.work.last:
            return False
        if not (moved(error) or lost(error) or isinstance(cause(error), TOO_SLOW)):
            return False
        self.run.log.warning("commit_repeated", task=self.work.held.id, error=kind_of(cause(error)))
        if lost(error):
            wait_for_database(self.run)
        else:
            sleep(self.run.dice.uniform(0, 0.05))
        return True


def chances(work: Work, run: Runtime) -> Iterator[Chance]:
    """Up to five tries at a commit with the same happening; the last one's error is raised."""
    for number in range(1, REPEATS + 1):
        work.last = number == REPEATS
        yield Chance(work, run)


def wait_for_database(run: Runtime) -> None:
    """Wait until the database answers again, at most PATIENCE_S."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        try:
            run.db.rows("SELECT 1")
            return
        except (*LOST, DBAPIError):
            sleep(run.dice.uniform(0.1, 0.5))


def landed(work: Work, run: Runtime) -> str | None:
    """The task's status when this step's commit went through although its answer was lost, else None."""
    if not work.writing:
        return None
    return patiently(run, lambda: landed_as(run.db, work.held, work.writing))


def give_back(work: Work, run: Runtime, *, soon: bool = False, died: bool = False) -> None:
    """Release the claim if it is still ours. `soon`: rung at the next sweep; `died`: it counts as a death."""
    patiently(run, lambda: claims.release(run.db, work.held, soon=soon, died=died))


def patiently(run: Runtime, act: Callable[[], T]) -> T:
    """Do it, and once more when the database was lost meanwhile and has come back."""
    try:
        return act()
    except Exception as error:
        if not lost(error):
            raise
        wait_for_database(run)
        return act()
