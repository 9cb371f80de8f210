"""One step: claim, absorb, begin, perform, reduce, commit. Read this first.

A task moves forward by one want. Whatever happens to this process at any line, the database holds either nothing of
the step or all of it; only an effect that has begun leaves a trace of its own, the durable `Started`.
"""

from __future__ import annotations

from dataclasses import dataclass

from twelvefold.errors import Stale, Unreadable
from twelvefold.reducer import reduce

from .absorb import absorb
from .begin import begin
from .chances import cause, chances, give_back, landed
from .commit import commit, quarantining
from .perform import perform
from .store import claims, slots
from .store.sweeps import shown
from .telemetry import kind_of
from .unit import Unit
from .work import LetGo, Runtime, Work, begin_work


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
        for chance in chances(work, run):
            with chance, Unit(run.db) as unit:
                with quarantining(work, unit, run):
                    absorb(work, run)
                    begin(work, unit, run)
                    happened = perform(work, unit, run)
                    work.move(reduce(work.agent, work.task, happened, work.now()))
                return _left(work, commit(work, unit, run))
    except Stale:
        return _stale(work, run)
    except (LetGo, Unreadable) as reason:
        run.log.warning("let_go", task=task_id, reason=type(reason).__name__)
        give_back(work, run, soon=isinstance(reason, LetGo))
    except Exception as error:
        run.log.error("step_broke", task=task_id, agent=work.agent.name, error=kind_of(cause(error)))
        give_back(work, run, died=True)
        raise
    return NOTHING


def claim(task_id: str, run: Runtime) -> Work | None:
    """Take the task, or None when it is not there to be taken: not ready, held, paused, or for newer code."""
    if run.stopping.is_set():
        return None
    flows, all_limited, lease = run.registry.flows, run.settings.tenant_concurrency is not None, run.settings.lease
    held = None if all_limited else claims.claim(run.db, task_id, run.worker, flows.free, lease)
    if held is None and (all_limited or flows.any):
        known = run.registry.known if all_limited else flows.limited
        held = slots.claim(run.db, task_id, run.worker, known, lease, flows.under(run.settings.tenant_concurrency))
    return None if held is None else begin_work(run, held)


def _left(work: Work, status: str) -> Left:
    return Left(status, shown(work.held.id, work.agent.name, work.held.step + 1, work.next_up))


def _stale(work: Work, run: Runtime) -> Left:
    """The claim is another's by now, an approval moved under us, or our own commit landed and its answer was lost."""
    status = landed(work, run)
    if status is not None:
        return _left(work, status)
    run.log.warning("stale", task=work.held.id, fence=work.held.fence)
    give_back(work, run, soon=True)
    return NOTHING
