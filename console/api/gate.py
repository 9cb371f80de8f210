"""Before anything is done: who asks, with which right, and what is in the body. What fails is told so that it teaches.

A request is authenticated before its body is read, and while it waits it holds neither a thread nor a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from console.edge import Edge
from triggers.body import read
from triggers.problem import Problem
from workers.store import threads
from workers.store.database import UNAVAILABLE
from workers.store.tokens import Role
from workers.telemetry import kind_of

from . import stream
from .bodies import Page
from .problems import busy, no_role, our_fault
from .render import as_json
from .request import MOST_BODY, Answer, Call, idempotency_key, known, opened, wait_for
from .stream import Streams
from .waiters import Waiters

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
STREAM = "text/event-stream"
AT_ONCE = 100
"""So many requests are worked on at a time; further ones are told to come again."""
Handler = Callable[[Edge, Call], Answer]


class Gate:
    """Makes endpoints of handlers: one place where requests are let in, counted, and answered when they fail.

    `finish` makes the answer anew after a wait.
    """

    def __init__(self, held: Edge, finish: Callable[[Edge, Call, Answer], Answer]) -> None:
        self._held, self._finish = held, finish
        self._waiters = Waiters(lambda ids: threads.resting(held.db, ids))
        self._streams = Streams(Waiters(lambda marks: threads.moved(held.db, marks)))
        self._under_way = 0

    def endpoint(self, handler: Handler, *roles: Role) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for tokens with one of these roles. The handler runs in a thread."""

        async def act(request: Request) -> Response:
            call = await self._let_in(request, roles)
            found = await self._work(handler, self._held, call)
            if found.turn is not None and call.wait:
                await self._waiters.rest(found.turn.thread, call.wait)
                found = await self._work(self._finish, self._held, call, found)
            return _sent(found)

        return self._guarded(act, handler.__name__)

    def log(self, page: Handler, *roles: Role) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for a thread's log: a page of it, or, for who accepts `text/event-stream`, a stream."""

        async def act(request: Request) -> Response:
            call = await self._let_in(request, roles)
            found = await self._work(page, self._held, call)
            if request.method != "GET" or STREAM not in request.headers.get("accept", ""):
                return _sent(found)
            wish = stream.wish(call, request.headers.get("last-event-id"), call.asks(Page).after)
            self._streams.admit(call.token.id)
            given = request.headers.getlist("authorization")

            async def read(after: int) -> list[dict[str, Any]]:
                token = await self._work(known, self._held.db, given)
                again = replace(call, token=token, query={"after": str(after), "limit": str(stream.PAGE)})
                answer: Answer = await self._work(page, self._held, again)
                events: list[dict[str, Any]] = answer.document["events"]
                return events

            text = self._streams.follow(wish, call.token.id, read)
            return StreamingResponse(text, 200, {**HEADERS, "X-Accel-Buffering": "no"}, STREAM)

        return self._guarded(act, page.__name__)

    def _guarded(
        self, act: Callable[[Request], Awaitable[Response]], name: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """What goes wrong in an endpoint becomes an answer that teaches, and tells nothing of ours."""

        async def answer(request: Request) -> Response:
            try:
                return await act(request)
            except Problem as problem:
                return problem.answer()
            except ClientDisconnect:
                return Response(status_code=400)
            except UNAVAILABLE as error:
                self._held.log.error("api_unavailable", of=name, error=kind_of(error))
                return busy("The database cannot be reached.").answer()
            except Exception as error:  # its text may quote a row, so only its kind is told
                self._held.log.error("api_failed", of=name, error=kind_of(error))
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
        token = await self._work(known, self._held.db, request.headers.getlist("authorization"))
        if not token.has(*roles):
            raise no_role(roles)
        headers, query = request.headers, dict(request.query_params)
        key = idempotency_key(headers.getlist("idempotency-key"))
        wait = wait_for(query.pop("wait", None) if request.method == "POST" else None, self._held.settings.api_wait)
        call = Call(token, request.path_params, query, key, wait)
        if request.method in ("GET", "HEAD"):
            return call
        sent, kind = await read(request, MOST_BODY), headers.get("content-type", "application/json")
        found: Call = await self._work(opened, call, sent, headers.get("content-encoding", ""), kind)
        return found


def _sent(found: Answer) -> Response:
    return Response(as_json(found.document), found.status, HEADERS, "application/json")
