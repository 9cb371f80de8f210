"""`POST /hooks/{source}`: a signed request becomes one `Arrived`, handed on once and acknowledged after the commit.

In this order: size, source, signature, time window, strict JSON, names, `accept`, 200. Nothing is parsed before it is
verified; parsing and `accept` run in a thread; what a sender repeats gets the same status as the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twelvefold.text import clean, inspect_json

from .adapter import Received, Source, Unverified
from .body import read
from .envelope import Accept, Arrived, Verdict
from .problem import Problem

_log = logging.getLogger(__name__)
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-gitlab-token", "x-api-key"})
_RETRY_AFTER = "5"


def routes(
    sources: Mapping[str, Source],
    accept: Accept,
    clock: Callable[[], datetime],
    max_body: int = 5_000_000,
    at_once: int = 100,
) -> list[Route]:
    """The routes of the webhooks; `sources` are looked up at each request, so that a removed secret fails at once.

    `max_body` is in bytes. When `at_once` requests wait for `accept`, further ones are told to come again (503).
    """
    waiting = 0

    async def handed_on(source: Source, received: Received, proof: str) -> Response:
        nonlocal waiting
        if waiting >= at_once:
            raise _busy()
        waiting += 1
        try:
            return await run_in_threadpool(_take, source, received, proof, accept)
        finally:
            waiting -= 1

    async def hook(request: Request) -> Response:
        label = request.path_params["source"]
        source = sources.get(label)
        try:
            limit = (source and source.max_body) or max_body
            raw = await read(request, limit)
            if source is None:
                raise Problem(404, "Unknown source", "No webhook source of this name is set up here. Check the URL.")
            received = Received(label, raw, tuple(request.headers.items()), clock(), limit)
            return await handed_on(source, received, _proof(source, received))
        except Problem as problem:
            return _refused(problem, source)
        except ClientDisconnect:
            return Response(status_code=400)

    return [Route("/hooks/{source}", hook, methods=["POST"], name="hooks")]


def _proof(source: Source, received: Received) -> str:
    try:
        return source.verifier.verify(received)
    except Unverified as error:
        raise Problem(401, "Signature not verified", error.reason, {"WWW-Authenticate": error.challenge}) from None


def _refused(problem: Problem, source: Source | None) -> Response:
    """The problem as this sender understands it: some try again for hours unless a certain status tells them not to."""
    if source is not None and source.refusal is not None and problem.status < 500:
        problem.status = source.refusal
    return problem.answer()


def _take(source: Source, received: Received, proof: str, accept: Accept) -> Response:
    """Translate, hand on, answer: in a thread, since a large body takes its time and `accept` waits for a commit."""
    try:
        said = source.translator.translate(received)
    except Problem:
        raise
    except Exception as error:  # of a third party's adapter; what it says may quote the body
        _log.error("webhook of source %s not translated: %s", received.source, type(error).__name__)
        raise _busy() from None
    gate = inspect_json(said.payload)
    arrived = Arrived(
        tenant=source.tenant,
        source=received.source,
        key=said.key,
        type=said.type,
        payload=gate.value,
        raw=received.raw,
        headers=_kept(received.headers),
        sender=said.sender,
        conversation=said.conversation,
        proof=proof,
        cleaned=gate.changed,
        ignore=said.ignore,
    )
    try:
        return _answer(accept(arrived))
    except Exception as error:
        # The text of a database error may quote the row, so only its kind is told.
        _log.error("webhook of source %s not stored: %s", received.source, type(error).__name__)
        raise _busy() from None


def _answer(verdict: Verdict) -> JSONResponse:
    return JSONResponse({"outcome": verdict.outcome, "reason": verdict.reason, "task_id": verdict.task_id})


def _busy() -> Problem:
    return Problem(
        503,
        "Not stored",
        f"The delivery could not be stored and nothing was begun. Send it again after {_RETRY_AFTER} seconds.",
        {"Retry-After": _RETRY_AFTER},
    )


def _kept(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers to keep beside the body, without credentials; the signature stays, it shows what was checked."""
    kept: dict[str, str] = {}
    for name, value in pairs:
        key = clean(name.lower())
        shown = "[redacted]" if key in _CREDENTIALS else clean(value)
        kept[key] = f"{kept[key]}, {shown}" if key in kept else shown
    return kept
