"""Before anything is done: who asks, with which right, and what is in the body. What fails is told so that it teaches.

A request is authenticated before its body is read, and while it waits it holds neither a thread nor a connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from console.edge import Edge
from triggers.body import inflate, parse, read
from triggers.problem import Problem
from twelvefold.text import inspect_json
from workers.store import threads, tokens
from workers.store.database import UNAVAILABLE, Database
from workers.store.tokens import Role, Token
from workers.telemetry import kind_of

from .problems import bad, busy, no_role, no_thread, no_token, our_fault, unfit
from .render import when
from .waiters import Waiters

MOST_BODY = 1_000_000
"""Bytes. A larger thing belongs where the agent can look it up."""
AT_ONCE = 100
"""So many requests are worked on at a time; further ones are told to come again."""
LONGEST_WAIT_S = 60.0
_SECRET = re.compile(r"tf_[A-Za-z0-9_-]{43}")
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request. `body` has passed the text gate, which changed `cleaned` code points; `raw` are its
    bytes without compression; `wait` is for how many seconds the caller wants to wait.
    """

    token: Token
    path: dict[str, Any]
    query: dict[str, str]
    key: str | None
    wait: float
    body: Any = None
    raw: bytes = b""
    cleaned: int = 0

    @property
    def thread(self) -> str:
        """The id in the path. Raises Problem 404 for what is none."""
        try:
            return str(UUID(self.path["id"]))
        except ValueError:
            raise no_thread() from None

    def read(self, model: type[M]) -> M:
        """The body as this model. Raises Problem 400 that names each member that is wrong, never its value."""
        try:
            return model.model_validate(self.body)
        except ValidationError as error:
            raise unfit("The body does not fit", error) from None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a thread does because of a request: its events after the seq `after`."""

    thread: str
    after: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; with a `turn` to the end of which the caller may wait."""

    status: int
    document: dict[str, Any]
    turn: Turn | None = None


Handler = Callable[[Edge, Call], Answer]


class Gate:
    """Makes endpoints of handlers: one place where requests are let in, counted, and answered when they fail.

    `finish` makes the answer anew after a wait.
    """

    def __init__(self, held: Edge, finish: Callable[[Edge, Call, Answer], Answer]) -> None:
        self._held, self._finish = held, finish
        self._waiters = Waiters(lambda ids: threads.resting(held.db, ids))
        self._under_way = 0

    def endpoint(self, handler: Handler, *roles: Role) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for tokens with one of these roles. The handler runs in a thread."""

        async def answer(request: Request) -> Response:
            try:
                call = await self._let_in(request, roles)
                found = await self._work(handler, self._held, call)
                if found.turn is not None and call.wait:
                    await self._waiters.rest(found.turn.thread, call.wait)
                    found = await self._work(self._finish, self._held, call, found)
                return _sent(found)
            except Problem as problem:
                return problem.answer()
            except ClientDisconnect:
                return Response(status_code=400)
            except UNAVAILABLE as error:
                self._held.log.error("api_unavailable", of=handler.__name__, error=kind_of(error))
                return busy("The database cannot be reached.").answer()
            except Exception as error:  # its text may quote a row, so only its kind is told
                self._held.log.error("api_failed", of=handler.__name__, error=kind_of(error))
                return our_fault().answer()

        return answer

    async def _work(self, act: Callable[..., Any], *arguments: Any) -> Any:
        if self._under_way >= AT_ONCE:
            raise busy("Too many requests are under way.")
        self._under_way += 1
        try:
            return await run_in_threadpool(act, *arguments)
        finally:
            self._under_way -= 1

    async def _let_in(self, request: Request, roles: tuple[Role, ...]) -> Call:
        token = await self._work(_known, self._held.db, request.headers.getlist("authorization"))
        if not token.has(*roles):
            raise no_role(roles)
        call = Call(
            token, request.path_params, dict(request.query_params), _key(request.headers.getlist("idempotency-key")),
            _wait(request.query_params.get("wait"), self._held.settings.api_wait),
        )  # fmt: skip
        if request.method in ("GET", "HEAD"):
            return call
        sent = await read(request, MOST_BODY)
        headers = request.headers
        found: Call = await self._work(
            _opened, call, sent, headers.get("content-encoding", ""), headers.get("content-type", "application/json")
        )
        return found


def _sent(found: Answer) -> Response:
    text = json.dumps(found.document, default=_text, ensure_ascii=False, separators=(",", ":"))
    return Response(text, found.status, {"Cache-Control": "no-store"}, "application/json")


def _text(value: object) -> str:
    """A time in UTC, or whatever else JSON has no form for, as text."""
    return when(value) if isinstance(value, datetime) else str(value)


def _known(db: Database, given: list[str]) -> Token:
    """Whose token it is. Raises Problem 401."""
    if not given:
        raise no_token()
    scheme, _, secret = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not _SECRET.fullmatch(secret.strip()):
        raise no_token("invalid_request")
    token = tokens.find(db, secret.strip())
    if token is None:
        raise no_token("invalid_token")
    return token


def _opened(call: Call, sent: bytes, encoding: str, kind: str) -> Call:
    """The call with its body: strict JSON, an object, through the text gate."""
    raw = inflate(sent, encoding, MOST_BODY)
    value = parse(raw, kind)
    if not isinstance(value, dict):
        raise bad("Not an object", 'The body is a JSON object, such as {"message": "..."}.')
    gate = inspect_json(value)
    return replace(call, body=gate.value, raw=raw, cleaned=gate.changed)


def _key(given: list[str]) -> str | None:
    """The Idempotency-Key: 1 to 255 visible ASCII characters."""
    if not given:
        return None
    if len(given) > 1 or not re.fullmatch(r"[!-~]{1,255}", given[0]):
        raise bad(
            "Unusable Idempotency-Key",
            "Send the header once, with 1 to 255 visible ASCII characters without spaces, the same at every attempt.",
        )
    return given[0]


def _wait(given: str | None, default: float) -> float:
    if given is None:
        return default
    if not _SECONDS.fullmatch(given) or float(given) > LONGEST_WAIT_S:
        raise bad("Unusable wait", f"`wait` is a number of seconds from 0 to {LONGEST_WAIT_S:g}, such as ?wait=20.")
    return float(given)
