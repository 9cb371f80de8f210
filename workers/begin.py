"""Begin: nothing leaves the database before this has committed, and nothing at all that may not begin now.

For an Effect it is a transaction of its own, with the durable `Started`; for a Write it is the first part of the
commit's transaction. A miss is an ordinary happening: the step goes on and commits what it means instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twelvefold.effects import Rest, RunEffect, RunWrite
from twelvefold.errors import DeadlinePassed, Stale
from twelvefold.events import ApprovalMoved, Blocked, Event, PolicyDenied, Started
from twelvefold.fold import fold
from twelvefold.policy import recheck
from twelvefold.record import Recorded
from twelvefold.state import OpenCall

from .absorb import read_inbox
from .perform import look
from .store.claims import Miss, ours, permit
from .store.commits import Batch, was_written, write_begin
from .store.database import Connection
from .telemetry import kind_of
from .unit import Unit
from .work import LetGo, Runtime, Work


def begin(work: Work, unit: Unit, run: Runtime) -> None:
    """Let the wanted Effect or Write begin, or put in its place what happened instead. Raises Stale and LetGo."""
    want, call = work.place.wants, work.state.call
    if call is None or work.begun or not isinstance(want, RunEffect | RunWrite):
        return
    work.happened = None
    again = isinstance(want, RunEffect) and want.attempt > 1
    refused = None if again else _judged_again(work, call)
    if refused is None and not again:
        refused = _looks_otherwise(work, run, call)
    if refused is not None:
        _instead(work, [refused])
    elif isinstance(want, RunWrite):
        miss = _permit(unit.connection(), work, call, approval=call.verdict == "ask")
        _missed(work, run, call, miss)
    else:
        _begin_effect(work, run, call, want)


def _judged_again(work: Work, call: OpenCall) -> Event | None:
    """The approval rule on the stored call as of now, where it says other than it did."""
    verdict = recheck(work.agent, work.task, call)
    if verdict.kind == "deny":
        return PolicyDenied(call=call.seq, why=verdict.reason or "not allowed any more")
    if verdict.kind == "ask" and call.verdict != "ask":
        return ApprovalMoved(call=call.seq, to="stale", reason="the rule asks for an approval now")
    if verdict.kind == "ask" and call.asks is not None and verdict.rule != call.asks.rule:
        return ApprovalMoved(call=call.seq, to="stale", reason="the rule asks others now")
    return None


def _looks_otherwise(work: Work, run: Runtime, call: OpenCall) -> Event | None:
    """Whether what the preview looked at has changed since a person saw it. No transaction is open while it looks."""
    if not call.fingerprint:
        return None
    try:
        same = look(work, run, call).fingerprint == call.fingerprint
    except (Exception, DeadlinePassed) as error:
        run.log.warning("preview_failed", task=work.held.id, tool=call.tool, error=kind_of(error))
        return ApprovalMoved(call=call.seq, to="stale", reason="the preview could not be read again")
    return None if same else ApprovalMoved(call=call.seq, to="stale", reason="what the preview showed has changed")


def _permit(connection: Connection, work: Work, call: OpenCall, *, approval: bool) -> Miss | None:
    rule = recheck(work.agent, work.task, call).rule if call.grant else ""
    return permit(
        connection, work.held, tool=call.tool, call=call.seq, digest=call.digest, approval=approval, grant=call.grant,
        rule=rule,
    )  # fmt: skip


def _begin_effect(work: Work, run: Runtime, call: OpenCall, want: RunEffect) -> None:
    if not run.pulse.fresh():
        raise LetGo
    started = Started(call=call.seq, key=want.key, attempt=want.attempt, digest=call.digest)
    recorded = Recorded(work.state.seq + 1, max(work.now(), work.state.at or work.now()), started)
    state = fold(work.state, recorded)
    batch = Batch(
        state=state, events=(*work.place.events, recorded), arrivals=work.place.arrivals, facts=work.place.facts
    )  # fmt: skip
    miss = None
    with run.db.transaction() as connection:
        if not _had_begun(connection, work):
            miss = _permit(connection, work, call, approval=call.verdict == "ask" and want.attempt == 1)
            if miss is None:
                work.writing = batch.events[0].seq
                write_begin(connection, work.held, batch)
    _missed(work, run, call, miss)
    if miss is None:
        work.place = replace(work.place, task=replace(work.task, state=state), events=(), arrivals=(), facts=())
        work.begun, work.writing = True, 0
        work.keep()


def _had_begun(connection: Connection, work: Work) -> bool:
    """Whether an earlier try of this Begin went through and its answer was lost."""
    if not work.writing or not was_written(connection, work.held, work.writing):
        return False
    if not ours(connection, work.held):
        raise Stale
    return True


def _missed(work: Work, run: Runtime, call: OpenCall, miss: Miss | None) -> None:
    if miss is None:
        return
    run.log.info("begin_missed", task=work.held.id, call=call.seq, tool=call.tool, why=miss.why)
    match miss.why:
        case "stale":
            raise Stale
        case "cancel":
            read_inbox(work, run, again=True)
            _instead(work, [])
        case "pause":
            if not work.place.events:
                raise LetGo
            _instead(work, [])
        case "freeze":
            blocked = Blocked(call=call.seq, scope=miss.scope, until=miss.until, reason=miss.reason)
            _instead(work, [blocked])
        case _:
            _instead(work, [ApprovalMoved(call=call.seq, to="stale", reason="the approval can no longer be used")])


def _instead(work: Work, happened: Sequence[Event]) -> None:
    work.place = replace(work.place, wants=Rest())
    work.happened = list(happened)
