"""One step: claim, absorb, begin, perform, reduce, commit. Read this first.

A task moves forward by one want. Whatever happens to this process at any line, the database holds either nothing of
the step or all of it; only an effect that has begun leaves a trace of its own, the durable `Started`.
"""

from __future__ import annotations

from dataclasses import dataclass

from twelvefold.errors import Stale, Unreadable
from twelvefold.reducer import reduce

from .absorb import absorb
from .begin import LetGo, begin
from .commit import chances, commit, quarantining
from .perform import perform
from .store import claims
from .store.sweeps import shown
from .unit import Unit
from .work import Runtime, Work, begin_work


@dataclass(frozen=True, slots=True)
class Left:
    """Where a step left its task: the new status, and one line for operators about what comes next."""

    status: str
    shown: str = ""


NOTHING = Left("nothing")


def step(task_id: str, run: Runtime) -> Left:
    """Move one task forward, or find that there is nothing to do for this worker."""
    work = claim(task_id, run)
    if work is None:
        return NOTHING
    try:
        absorb(work, run)
        for chance in chances(work, run):
            with chance, Unit(run.db) as unit:
                begin(work, unit, run)
                with quarantining(work, unit, run):
                    happened = perform(work, unit, run)
                    work.move(reduce(work.agent, work.task, happened, work.now()))
                status = commit(work, unit, run)
            return Left(status, shown(task_id, work.agent.name, work.held.step + 1, work.next_up))
    except Stale:
        run.log.warning("stale", task=task_id, fence=work.held.fence)
    except (LetGo, Unreadable) as reason:
        run.log.warning("let_go", task=task_id, reason=type(reason).__name__)
        claims.release(run.db, work.held, soon=isinstance(reason, LetGo))
    return NOTHING


def claim(task_id: str, run: Runtime) -> Work | None:
    """Take the task, or None when it is not there to be taken: not ready, held, paused, or for newer code."""
    if run.stopping.is_set():
        return None
    held = claims.claim(run.db, task_id, run.worker, run.registry.known, run.settings.lease)
    return None if held is None else begin_work(run, held)
