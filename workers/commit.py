"""Commit: one transaction for task row, events, business rows, approvals, outbox and children; then the doorbell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twelvefold.directory import Directory
from twelvefold.errors import Stale, Unreadable
from twelvefold.events import ApprovalMoved, Blocked, PolicyDenied, Quarantined
from twelvefold.record import Recorded, hold
from twelvefold.reducer import reduce

from .chances import lost, moved
from .outgoing import children, letters
from .remember import new_texts, were_stored
from .store import approvals, waits
from .store.claims import ours
from .store.commits import Batch, write
from .store.database import Connection
from .telemetry import kind_of
from .unit import Unit
from .work import Cancelled, LetGo, Runtime, Work


def commit(work: Work, unit: Unit, run: Runtime) -> str:
    """Write everything this step came to. Returns the task's new status. Raises Stale when the claim is lost."""
    shared, rendered = new_texts(work, run)
    batch = Batch(
        state=work.state, events=work.place.events, arrivals=work.place.arrivals, letters=letters(work, run),
        facts=work.place.facts, children=children(work), floor=work.agent.version, agent_version=work.loaded.version,
        agent=work.held.agent, shared=shared, rendered=rendered,
    )  # fmt: skip
    key = waits.opened_key(work.place.events, work.state)
    for why, call in _denied(batch.events):
        run.log.info(
            "call_denied", task=work.held.id, agent=work.agent.name, call=call, tool=_tool(work, call), why=why
        )
    if unit.is_open or key or approvals.concerned(batch.events):
        status = _write(unit.connection(), work, batch, key, run.settings.directory)
    else:
        with run.db.connection() as connection:
            status = _write(connection, work, batch, None, run.settings.directory)
            were_stored(work, run)
    return status


def _denied(events: Sequence[Recorded]) -> Iterator[tuple[str, int]]:
    """The calls that end without having run, and in one word why: whoever watches the log sees them too."""
    for recorded in events:
        match recorded.event:
            case ApprovalMoved(to="rejected" | "expired" | "superseded" as to, call=call):
                yield to, call
            case PolicyDenied(call=call):
                yield "denied", call
            case Blocked(call=call):
                yield "frozen", call


def _tool(work: Work, call: int) -> str:
    open_call = work.held.state.call
    return open_call.tool if open_call is not None and open_call.seq == call else ""


def _write(
    connection: Connection, work: Work, batch: Batch, wait_key: str | None, directory: Directory
) -> str:  # fmt: skip
    if batch.events:
        work.writing = batch.events[0].seq
    if wait_key:
        waits.lock(connection, work.held.tenant, wait_key)
    status = write(connection, work.held, batch)
    if status is None and work.begun and ours(connection, work.held):
        work.cancelled = True
        raise Cancelled
    if status is None:
        raise Stale
    approvals.apply(connection, work.held, batch.events, directory)
    if wait_key and waits.adopt(connection, work.held, wait_key):
        status = "ready"
    return status


@contextmanager
def quarantining(work: Work, unit: Unit, run: Runtime) -> Iterator[None]:
    """What our own code cannot digest is quarantined; the tool's rows are undone and what happened is held back.

    Deadlocks, conflicts and lost connections pass through and are repeated; stale and unreadable claims end the step.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, Stale | Unreadable | LetGo) or lost(error) or (moved(error) and not work.last):
            raise
        unit.undo()
        work.rewind()
        held = hold(list(work.happened or ()))
        run.log.error("task_quarantined", task=work.held.id, agent=work.agent.name, error=kind_of(error))
        quarantined = Quarantined(reason=kind_of(error), held=held or None)
        work.move(reduce(work.agent, work.task, [quarantined], work.now()))
