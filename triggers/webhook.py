"""`POST /hooks/{source}`: a signed request becomes one `Arrived`, handed on once and acknowledged after the commit.

In this order: size, source, signature, time window, strict JSON, names, `accept`, 200. Nothing is parsed before it is
verified; parsing and `accept` run in a thread; what a sender repeats gets the same status as the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twelvefold.text import clean, inspect_json

from .body import inflate, parse, read
from .envelope import Accept, Arrived, Verdict
from .problem import Problem
from .signature import Unverified, verify
from .source import Source, kind, names

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

    async def handed_on(label: str, source: Source, request: Request, raw: bytes, proof: str) -> Response:
        nonlocal waiting
        if waiting >= at_once:
            raise _busy()
        waiting += 1
        try:
            return await run_in_threadpool(_take, label, source, request, raw, proof, accept, max_body)
        finally:
            waiting -= 1

    async def hook(request: Request) -> Response:
        label = request.path_params["source"]
        try:
            raw = await read(request, max_body)
            source = sources.get(label)
            if source is None:
                raise Problem(404, "Unknown source", "No webhook source of this name is set up here. Check the URL.")
            proof = _proof(source, request, raw, clock())
            return await handed_on(label, source, request, raw, proof)
        except Problem as problem:
            return problem.answer()
        except ClientDisconnect:
            return Response(status_code=400)

    return [Route("/hooks/{source}", hook, methods=["POST"], name="hooks")]


def _proof(source: Source, request: Request, raw: bytes, now: datetime) -> str:
    secrets = [secret.encode() for secret in source.secrets]
    try:
        index = verify(source.scheme, secrets, request.headers.items(), raw, now)
    except Unverified as error:
        challenge = {"WWW-Authenticate": f'Signature header="{source.scheme.header}"'}
        raise Problem(401, "Signature not verified", error.reason, challenge) from None
    return f"hmac:{kind(source)}#{index}"


def _take(
    label: str, source: Source, request: Request, raw: bytes, proof: str, accept: Accept, max_body: int
) -> Response:
    """Translate, hand on, answer: in a thread, since a large body takes its time and `accept` waits for a commit."""
    body = inflate(raw, request.headers.get("content-encoding", ""), max_body)
    payload = parse(body, request.headers.get("content-type", "application/json"))
    named = names(source, label, request.headers, payload, raw)
    gate = inspect_json(payload)
    arrived = Arrived(
        tenant=source.tenant,
        source=label,
        key=named.key,
        type=named.type,
        payload=gate.value,
        raw=raw,
        headers=_kept(request.headers.items()),
        sender=named.sender,
        conversation=named.conversation,
        proof=proof,
        cleaned=gate.changed,
    )
    try:
        return _answer(accept(arrived))
    except Exception as error:
        # The text of a database error may quote the row, so only its kind is told.
        _log.error("webhook of source %s not stored: %s", label, type(error).__name__)
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


def _kept(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The headers to keep beside the body, without credentials; the signature stays, it shows what was checked."""
    kept: dict[str, str] = {}
    for name, value in pairs:
        key = clean(name.lower())
        shown = "[redacted]" if key in _CREDENTIALS else clean(value)
        kept[key] = f"{kept[key]}, {shown}" if key in kept else shown
    return kept
