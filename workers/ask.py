"""Ask the model for one decision: window, request, reply, and what the reply comes to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from twelvefold.decide import decided
from twelvefold.effects import AskModel
from twelvefold.errors import Fatal, Rejection, Transport
from twelvefold.events import Event, Failed, ModelAsked, Rejected, Spent
from twelvefold.policy import vouched
from twelvefold.ports import ModelReply, ModelRequest
from twelvefold.replies import read_reply
from twelvefold.shape import Row
from twelvefold.state import OpenCall
from twelvefold.text import clean
from twelvefold.tool import Tool
from twelvefold.window import UNSEEN_TYPES, Window, build

from .store import log
from .telemetry import kind_of
from .work import Runtime, Work

ATTEMPTS = 5
CAP_S = 60.0
MAX_TOKENS = 4_096
SEED = 42


def ask_model(work: Work, run: Runtime, want: AskModel, read: Callable[[OpenCall], list[Event]]) -> list[Event]:
    """The events of one model call: asked and decided, asked and rejected, or failed with a time to try again."""
    s = work.state
    rows = [*log.window(run.db, work.held.id, want.boundary, s.opened, s.view.folded), *unwritten(work)]
    window = build(work.agent, work.task, work.loaded.prompt, rows, want, run.settings.directory)
    try:
        reply = run.model.ask(_request(work, run, window))
    except Transport as error:
        return [_later(work, run, error)]
    except Fatal as error:
        run.log.error("model_unusable", task=work.held.id, agent=work.agent.name, code=error.code)
        found = Failed(type=error.code, message=str(error), then="operator", attempt=s.transport + 1)
        return [_shorter(work, found)]
    asked = _asked(work, run, want, window, reply)
    try:
        calls = read_reply(work.agent, reply)
    except Rejection as error:
        return [asked, Rejected(kind=error.kind, text=clean(str(error)), tool=error.tool)]
    if len(calls) == 1:
        return [asked, decided(calls[0], by="model")]
    return [asked, *_several(work, calls, read)]


def _shorter(work: Work, found: Failed) -> Failed:
    """What the provider finds too long is folded further and asked once more; a second time is an operator's."""
    if found.type != "context" or work.state.view.overflows:
        return found
    return found.model_copy(update={"then": "retry"})


def unwritten(work: Work) -> list[Row]:
    """Events of this very step, absorbed but not yet in the log."""
    return [Row(r.seq, type(r.event).__name__, r.event.version, r.event.data)
            for r in work.place.events if type(r.event).__name__ not in UNSEEN_TYPES]  # fmt: skip


def _request(work: Work, run: Runtime, window: Window) -> ModelRequest:
    return ModelRequest(
        agent=work.agent.name, model=work.agent.model or run.settings.model, system=window.system, user=window.user,
        menu=window.menu, temperature=0.0, seed=SEED, max_tokens=MAX_TOKENS, timeout=run.settings.model_timeout,
        task=work.task if run.scripted else None,
    )  # fmt: skip


def _asked(work: Work, run: Runtime, want: AskModel, window: Window, reply: ModelReply) -> ModelAsked:
    estimate = window.receipt["total"]
    lost = max(0, work.held.attempts - 1)
    tokens_in = reply.tokens_in or (0 if run.scripted else estimate)
    tokens_in += 0 if run.scripted else lost * estimate
    return ModelAsked(
        model=reply.model, request=window.request, receipt=window.receipt, boundary=want.boundary, lost=lost,
        eased=want.eased, prefix=window.prefix, broke=work.state.view.prefix not in ("", window.prefix),
        spent=spent_on(run, reply, tokens_in),
        request_id=reply.request_id, fingerprint=reply.fingerprint, raw=clean(reply.raw), scripted=run.scripted,
    )  # fmt: skip


def spent_on(run: Runtime, reply: ModelReply, tokens_in: int) -> Spent:
    """What a call cost."""
    prices = Decimal(str(run.settings.price_in)), Decimal(str(run.settings.price_out))
    usd = (tokens_in * prices[0] + reply.tokens_out * prices[1]) / 1_000_000
    return Spent(tokens_in=tokens_in, tokens_out=reply.tokens_out, usd=usd, ms=reply.duration_ms)


def _later(work: Work, run: Runtime, error: Transport) -> Failed:
    """When to ask again: what the endpoint said, else 1 s · 2ⁿ with full jitter, at most 60 s; after 5 an operator."""
    attempt = work.state.transport + 1
    run.log.warning("model_unreachable", task=work.held.id, attempt=attempt, kind=error.kind, error=kind_of(error))
    if attempt >= ATTEMPTS:
        return Failed(type=error.kind, message=f"No answer after {attempt} attempts.", then="operator", attempt=attempt)
    wait = error.retry_after if error.retry_after is not None else run.dice.uniform(0, min(CAP_S, 2 ** (attempt - 1)))
    at = work.now() + timedelta(seconds=wait)
    return Failed(type=error.kind, message="The model did not answer.", then="retry", attempt=attempt, not_before=at)


def _several(work: Work, calls: list[Tool[object]], read: Callable[[OpenCall], list[Event]]) -> list[Event]:
    """Several READ calls of one reply, in order inside the step; the first that may not run unasked, or that no model
    can mend, ends the row.
    """
    happened: list[Event] = []
    seq = work.state.seq + 1
    for number, call in enumerate(calls):
        seq += 1
        decision = vouched(work.agent, work.task, decided(call, by="model", further=number > 0), seq)
        happened.append(decision)
        if isinstance(decision, Rejected) or decision.verdict != "auto":
            break
        row = OpenCall(seq=seq, tool=decision.tool, args=decision.args, kind="read", phase="approved")
        found = read(row)
        happened += found
        seq += 1
        if len(found) > 1:
            break
    return happened
