"""Put one question to a model: which model for which role, what was asked instead, what it cost, what it was made of.

Every call of a model goes through here, whatever it is for. What comes back is the reply with its event, or the event
that says why there is none; nothing is retried inside the step but by the next model of the role.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any

from twelvefold.errors import Fatal, Transport
from twelvefold.events import Event, Failed, ModelAsked, Spent, Throttled
from twelvefold.ports import ModelReply, ModelRequest
from twelvefold.text import clean

from .daily import over
from .prompts import Made, make
from .telemetry import kind_of
from .work import Runtime, Work

ATTEMPTS = 5
CAP_S = 60.0
MAX_TOKENS = 4_096
SEED = 42
TOO_LATE_S = 5.0
"""With less of the step's time than this left, no further model is asked."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked. `tokens` is the estimate of what goes in, with the receipt that adds up to it;
    `timeout` is in seconds.
    """

    role: str
    system: str
    user: str
    menu: tuple[dict[str, Any], ...]
    tokens: int
    receipt: dict[str, Any] | None = None
    boundary: int = 0
    most: int = MAX_TOKENS
    """Tokens that the reply may have."""
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model said, and the event of having asked it."""

    reply: ModelReply
    asked: ModelAsked


def put(work: Work, run: Runtime, question: Question) -> Answered | Event:
    """Ask the models of the role, one after the other, until one answers; else the event of what went wrong, or of why
    nothing is asked now.
    """
    stopped = over(work, run) or _held_up(work, run, question)
    return stopped or _put(work, run, question)


def _held_up(work: Work, run: Runtime, question: Question) -> Throttled | None:
    wait = run.turnstile.enter(question.tokens) if run.turnstile else 0.0
    return Throttled(until=work.now() + timedelta(seconds=wait)) if wait else None


def _put(work: Work, run: Runtime, question: Question) -> Answered | Event:
    instead: list[str] = []
    error: Transport | None = None
    for name in run.roster.models(question.role, work.agent.model):
        if error is not None and _left(work, run) < TOO_LATE_S:
            break
        request = _request(work, run, question, name)
        made = make(request, run.profile, work.loaded.parts)
        try:
            reply = run.model.ask(replace(request, body=made.body))
        except Transport as failure:
            error = failure
            if run.turnstile:
                run.turnstile.failed(failure)
            instead.append(f"{name}: {failure.kind}")
            continue
        except Fatal as failure:
            if run.turnstile:
                run.turnstile.failed(failure)
            run.log.error("model_unusable", task=work.held.id, agent=work.agent.name, code=failure.code)
            return Failed(type=failure.code, message=str(failure), then="operator", attempt=work.state.transport + 1)
        if run.turnstile:
            run.turnstile.passed(question.tokens, reply.tokens_in + reply.tokens_out)
        work.texts += made.texts
        return Answered(reply, _asked(work, run, question, made, reply, name, tuple(instead)))
    assert error is not None, "a role has a model"
    return _later(work, run, error)


def _left(work: Work, run: Runtime) -> float:
    """Seconds that are left of the step."""
    return run.settings.step_deadline - (monotonic() - work.held.since)


def _request(work: Work, run: Runtime, question: Question, model: str) -> ModelRequest:
    return ModelRequest(
        agent=work.agent.name, model=model, system=question.system, user=question.user,
        menu=question.menu, temperature=0.0, seed=SEED, max_tokens=question.most,
        timeout=min(question.timeout, run.settings.model_timeout, max(1.0, _left(work, run))),
        task=work.task if run.scripted else None,
    )  # fmt: skip


def _asked(
    work: Work, run: Runtime, question: Question, made: Made, reply: ModelReply, name: str, instead: tuple[str, ...]
) -> ModelAsked:
    lost = max(0, work.held.attempts - 1)
    tokens_in = reply.tokens_in or (0 if run.scripted else question.tokens)
    tokens_in += 0 if run.scripted else lost * question.tokens
    usd = run.roster.price(name).of(tokens_in, reply.tokens_out)
    return ModelAsked(
        model=reply.model, request=made.request, receipt=question.receipt, boundary=question.boundary, lost=lost,
        spent=Spent(tokens_in=tokens_in, tokens_out=reply.tokens_out, usd=usd, ms=reply.duration_ms),
        request_id=reply.request_id, fingerprint=reply.fingerprint, raw=clean(reply.raw), scripted=run.scripted,
        role=question.role, instead=instead, made_of=made.made_of,
    )  # fmt: skip


def _later(work: Work, run: Runtime, error: Transport) -> Failed:
    """When to ask again: what the endpoint said, else 1 s · 2ⁿ with full jitter, at most 60 s; after 5 an operator."""
    attempt = work.state.transport + 1
    run.log.warning("model_unreachable", task=work.held.id, attempt=attempt, kind=error.kind, error=kind_of(error))
    if attempt >= ATTEMPTS:
        return Failed(type=error.kind, message=f"No answer after {attempt} attempts.", then="operator", attempt=attempt)
    wait = error.retry_after if error.retry_after is not None else run.dice.uniform(0, min(CAP_S, 2 ** (attempt - 1)))
    at = work.now() + timedelta(seconds=wait)
    return Failed(type=error.kind, message="The model did not answer.", then="retry", attempt=attempt, not_before=at)
