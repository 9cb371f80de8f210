"""`POST /hooks/{source}`: a signed request becomes one `Arrived`, handed on once and acknowledged after the commit.

In this order: size, source, signature, time window, strict JSON, names, `accept`, 200. Nothing is parsed before it is
verified; parsing and `accept` run in a thread; what a sender repeats gets the same status as the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twelvefold.text import clean, inspect_json

from .adapter import Received, Source, Unverified
from .body import read
from .envelope import Accept, Arrived, Verdict
from .problem import Problem

if TYPE_CHECKING:
    from .inbound import Posted

_log = logging.getLogger(__name__)
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-gitlab-token", "x-api-key"})
_RETRY_AFTER = "5"
LARGE = 500_000
"""A body over so many bytes is verified in a thread, so that no other request waits for it."""
AcceptMail = Callable[[str, "Posted"], Verdict]
"""Takes one mail of a tenant; any exception means that nothing was stored."""


def routes(
    sources: Mapping[str, Source],
    accept: Accept,
    clock: Callable[[], datetime],
    max_body: int = 5_000_000,
    at_once: int = 100,
    mail: AcceptMail | None = None,
) -> list[Route]:
    """The routes of the webhooks; `sources` are looked up at each request, so that a removed secret fails at once.

    `max_body` is in bytes; `mail` takes what providers of mail post. When `at_once` requests wait for `accept`, further
    ones are told to come again (503).
    """
    waiting = 0

    async def handed_on(source: Source, received: Received, proof: str) -> Response:
        nonlocal waiting
        if waiting >= at_once:
            raise _busy()
        waiting += 1
        try:
            return await run_in_threadpool(_take, source, received, proof, accept, mail)
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
            prove = run_in_threadpool(_proof, source, received) if len(raw) > LARGE else None
            return await handed_on(source, received, _proof(source, received) if prove is None else await prove)
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


def _take(source: Source, received: Received, proof: str, accept: Accept, mail: AcceptMail | None) -> Response:
    """Translate, hand on, answer: in a thread, since a large body takes its time and `accept` waits for a commit."""
    if source.mails is not None:
        return _take_mails(source, received, mail)
    assert source.translator is not None
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


def _take_mails(source: Source, received: Received, mail: AcceptMail | None) -> Response:
    """Each mail of the request to each of its recipients; a repeat finds what was stored before."""
    assert source.mails is not None
    found = source.mails(received)
    try:
        verdicts = [mail(source.tenant, each) for each in found] if mail is not None else []
    except Problem:
        raise
    except Exception as error:
        _log.error("mail of source %s not stored: %s", received.source, type(error).__name__)
        raise _busy() from None
    if not verdicts:
        raise Problem(404, "No mail here", "Mail is not taken here, or this one is for nobody.")
    return _answer(next((v for v in verdicts if v.outcome == "accepted"), verdicts[0]))


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
