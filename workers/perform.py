"""Carry out one want: ask the model, run a tool, look outside. What happened comes back as events, never as errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, Protocol, assert_never, cast

from pydantic import ValidationError
from sqlalchemy.orm import Session

from twelvefold.canonical import plain
from twelvefold.decide import doubted
from twelvefold.effects import (
    AskModel,
    Feed,
    Find,
    OpenPage,
    Prefetch,
    Record,
    Rest,
    RunEffect,
    RunPreview,
    RunRead,
    RunWrite,
    Summarise,
)
from twelvefold.errors import DeadlinePassed, Fatal, ToolError
from twelvefold.events import Event, Failed, Previewed, Returned, Settled
from twelvefold.memory import Memory, Recall, Remember
from twelvefold.record import unhold
from twelvefold.schema import stored_call
from twelvefold.state import OpenCall
from twelvefold.text import clean, clean_json, shorten
from twelvefold.tool import Effect, Preview, Tool

from .ask import ask_model
from .chances import cause, lost, moved, wait_for_database
from .folding import open_page, summarise
from .memory import recall, remember
from .outside import Context
from .prefetch import prefetch
from .store import log
from .store.database import DirtyTransaction
from .telemetry import kind_of
from .unit import Unit
from .work import Runtime, Work, context

READ_AGAIN_S = (0.0, 1.0, None)
MOST_CHECK = 300
"""So many characters of what a check says are kept."""
FIND_TRIES_S = 60.0
"""When `find` itself fails, it is asked again after so many seconds."""


class Runs(Protocol):
    """A tool that runs."""

    def run(self, ctx: Context) -> Any: ...
    def find(self, ctx: Context) -> Any: ...
    def dry_run(self, ctx: Context) -> Any: ...
    def write(self, db: Session) -> Any: ...


def perform(work: Work, unit: Unit, run: Runtime) -> Sequence[Event]:
    """What happened when the want was carried out, and our rows about it written into the commit's transaction.

    Only a Write is done again when the commit is repeated; everything else happens once a step.
    """
    if isinstance(work.place.wants, RunWrite):
        return _write(work, unit, run)
    if work.happened is None:
        work.happened = _carry_out(work, run)
    for event in work.happened:
        if isinstance(event, Returned) and work.state.call is not None:
            _record(work, unit, work.state.call, event)
    return work.happened


def _carry_out(work: Work, run: Runtime) -> list[Event]:  # noqa: C901 - one arm a want
    want = work.place.wants
    match want:
        case Rest() | RunWrite():
            return []
        case AskModel():
            return ask_model(work, run, want, lambda call: _read(work, run, call))
        case Summarise():
            return summarise(work, run, want)
        case OpenPage():
            return [open_page(work, run, open_call(work))]
        case Prefetch():
            return [prefetch(work, run)]
        case RunPreview():
            return _preview(work, run, open_call(work))
        case RunRead():
            return _read(work, run, open_call(work))
        case RunEffect():
            return [_effect(work, run, open_call(work))]
        case Find():
            return _find(work, run, open_call(work))
        case Record():
            call = open_call(work)
            return [_returned(tool_of(work, call), call, json.loads(call.result), 0)]
        case Feed():
            return unhold(log.data_of(run.db, work.held.id, want.seq)["held"])
    assert_never(want)


def open_call(work: Work) -> OpenCall:
    """The call in hand; a want about a call cannot come without one."""
    assert work.state.call is not None, "this want needs an open call"
    return work.state.call


def tool_of(work: Work, call: OpenCall) -> Tool[Any]:
    """The stored call as today's tool."""
    return stored_call(work.agent.menu, work.agent.renamed, call.tool, call.args)


def _context(work: Work, run: Runtime, tool: Tool[Any], key: str) -> Context:
    return context(work, run, key, tool.__spec__.timeout)


def _ms(since: float) -> int:
    return int((monotonic() - since) * 1000)


def _result(tool: Tool[Any], value: Any) -> Any:
    """The result as plain data; raises ValidationError or TypeError when it is not what the tool promised."""
    adapter = tool.__spec__.result
    return clean_json(plain(adapter.dump_python(adapter.validate_python(value), mode="json")))


def _returned(tool: Tool[Any], call: OpenCall, result: Any, ms: int) -> Returned:
    value = tool.__spec__.result.validate_python(result)
    own = type(tool).show is not Tool.show
    shown = clean_json(plain(tool.show(value))) if own else None
    return Returned(call=call.seq, result=result, shown=shown, ms=ms, check=_checked(tool, value))


def _checked(tool: Tool[Any], value: Any) -> str:
    """What the tool's own check says of its result. The result is there, so a check that fails must not undo it."""
    try:
        return shorten(clean(tool.check(value) or ""), MOST_CHECK)
    except Exception as error:
        return f"not checked ({type(error).__name__})"


def failed(call: OpenCall, error: BaseException, ms: int = 0) -> Failed:
    """A tool's error as the model reads it: compact, without a stack trace."""
    if isinstance(error, ToolError):
        return Failed(
            call=call.seq, type=type(error).__name__, message=shorten(str(error), 1000), affected=error.affected,
            suggestion=error.suggestion, retry_after=error.retry_after, attempt=max(call.attempt, 1), ms=ms,
        )  # fmt: skip
    text = f"{call.tool} failed ({type(error).__name__}). Nothing was changed."
    return Failed(call=call.seq, type=type(error).__name__, message=text, attempt=max(call.attempt, 1), ms=ms)


def _broke(work: Work, run: Runtime, call: OpenCall, error: BaseException, begun: float) -> list[Event]:
    """What a Read's or Write's error comes to: nothing happened. What no model can mend is parked for an operator."""
    if isinstance(error, DeadlinePassed):
        error = ToolError(f"{call.tool} took longer than {tool_of(work, call).__spec__.timeout:g} s.")
    if not isinstance(error, ToolError):
        run.log.error("tool_broke", task=work.held.id, tool=call.tool, error=kind_of(cause(error)))
    events: list[Event] = [failed(call, cause(error), _ms(begun))]
    if isinstance(error, Fatal):
        events.append(Failed(type=error.code, message=shorten(str(error), 1000), then="operator"))
    return events


def look(work: Work, run: Runtime, call: OpenCall) -> Preview:
    """What the tool says it would do. Raises whatever it raises, and DeadlinePassed."""
    tool, begun = tool_of(work, call), monotonic()
    found = cast(Runs, tool).dry_run(_context(work, run, tool, call.key))
    _in_time(tool, begun)
    return found if isinstance(found, Preview) else Preview(shown=found)


def _preview(work: Work, run: Runtime, call: OpenCall) -> list[Event]:
    """What a person shall see beside the call. A tool that cannot say what it would do does not come to be asked."""
    begun = monotonic()
    try:
        found = look(work, run, call)
        shown = clean_json(plain(found.shown))
    except (Exception, DeadlinePassed) as error:
        return _broke(work, run, call, error, begun)
    return [Previewed(call=call.seq, shown=shown, fingerprint=found.fingerprint, ms=_ms(begun))]


def _read(work: Work, run: Runtime, call: OpenCall) -> list[Event]:
    """Run a Read. What is no word to the model is tried twice more, at once and a second later."""
    tool, begun = tool_of(work, call), monotonic()
    for pause in READ_AGAIN_S:
        try:
            return [_read_once(work, run, tool, call)]
        except (ToolError, Fatal) as error:
            return _broke(work, run, call, error, begun)
        except (Exception, DeadlinePassed) as error:
            if pause is None:
                return _broke(work, run, call, error, begun)
            if lost(error):
                wait_for_database(run)
            sleep(pause)
    raise AssertionError("the last try returns")


def _read_once(work: Work, run: Runtime, tool: Tool[Any], call: OpenCall) -> Event:
    begun = monotonic()
    if isinstance(tool, Recall):
        return _recalled(tool, call, recall(work, run, tool), begun)
    result = _result(tool, cast(Runs, tool).run(_context(work, run, tool, call.key)))
    _in_time(tool, begun)
    return _returned(tool, call, result, _ms(begun))


def _recalled(tool: Recall, call: OpenCall, found: list[Memory], begun: float) -> Event:
    """What was kept by a task that had read untrusted text taints the one that reads it now."""
    returned = _returned(tool, call, _result(tool, found), _ms(begun))
    return returned.model_copy(update={"tainted": any(memory.tainted for memory in found)})


def _in_time(tool: Tool[Any], begun: float) -> None:
    # a tool that swallows its own time-out must not pass for one that answered in time
    if monotonic() - begun > tool.__spec__.timeout:
        raise DeadlinePassed


def _effect(work: Work, run: Runtime, call: OpenCall) -> Event:
    """Run an effect that has begun. Only a return or a ToolError ends it; everything else leaves it in doubt."""
    tool, begun = tool_of(work, call), monotonic()
    if not run.pulse.fresh():
        return doubted(work.agent, call, work.now(), "this worker lost sight of the database before sending")
    context = _context(work, run, tool, call.key)
    try:
        value = cast(Runs, tool).run(context)
        _in_time(tool, begun)
        return _returned(tool, call, _result(tool, value), _ms(begun))
    except ToolError as error:
        return failed(call, error, _ms(begun))
    except DeadlinePassed:
        reason = f"the answer took longer than {tool.__spec__.timeout:g} s"
    except (ValidationError, TypeError):
        reason = "the answer was not what the tool promises"
    except Exception as error:
        reason = f"the answer was lost ({kind_of(error)})"
    run.log.warning("effect_in_doubt", task=work.held.id, tool=call.tool, call=call.seq, attempt=call.attempt)
    return doubted(work.agent, call, work.now(), reason, _ms(begun))


def _find(work: Work, run: Runtime, call: OpenCall) -> list[Event]:
    """Ask the outside whether it happened. A `find` that fails is asked again later; it never counts as a no."""
    tool = tool_of(work, call)
    context = _context(work, run, tool, call.key)
    assert isinstance(tool, Effect)
    try:
        found = tool.find(context)
        if found is None:
            return [Settled(call=call.seq, how="not", by="find")]
        result = _result(tool, found)
    except Exception as error:
        run.log.warning("find_failed", task=work.held.id, tool=call.tool, error=kind_of(error))
        at = work.now() + timedelta(seconds=FIND_TRIES_S)
        return [Settled(call=call.seq, how="unknown", by="find", settle_at=at)]
    settled = Settled(call=call.seq, how="happened", by="find", result=result)
    return [settled, _returned(tool, call, result, 0)]


def _write(work: Work, unit: Unit, run: Runtime) -> list[Event]:
    """Perform a Write behind a savepoint. What is neither repeated nor swallowed ends as a failure, undone."""
    call = open_call(work)
    tool, begun = tool_of(work, call), monotonic()
    try:
        with unit.savepoint() as session:
            session.info["tenant"] = work.held.tenant
            if isinstance(tool, Remember):
                value: Any = remember(work, unit.connection(), call, tool)
            else:
                value = cast(Runs, tool).write(session)
            result = _result(tool, value)
    except Exception as error:
        if isinstance(error, DirtyTransaction) or lost(error) or (moved(error) and not work.last):
            raise
        return _broke(work, run, call, error, begun)
    return [_returned(tool, call, result, _ms(begun))]


def _record(work: Work, unit: Unit, call: OpenCall, event: Returned) -> None:
    """Write the tool's own rows about an effect, in the transaction of the commit."""
    tool = tool_of(work, call)
    if isinstance(tool, Effect) and type(tool).record is not Effect.record:
        with unit.savepoint() as session:
            session.info["tenant"] = work.held.tenant
            tool.record(tool.__spec__.result.validate_python(event.result), session)
