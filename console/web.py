"""The two web applications. The public one may face the internet: webhooks and approval pages. The operator one is the
control API. Both have probes, both work with the broker down, and both let go of everything they hold when they end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Literal

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from triggers.envelope import Arrived, Verdict
from triggers.webhook import routes as hooks
from workers.links import from_settings
from workers.settings import Settings
from workers.telemetry import configure

from . import answer, api, approve, leave, slack
from .edge import Edge, edge
from .posted import mails
from .sources import sources

Part = Literal["public", "operator"]


def public(settings: Settings) -> Starlette:
    """What may face the internet: POST /hooks/{source}, POST /slack/…, /a/{token}, GET /livez, GET /readyz."""
    return application(settings, ("public",))


def operator(settings: Settings) -> Starlette:
    """The control API, for a network of one's own."""
    return application(settings, ("operator",))


def application(settings: Settings, parts: tuple[Part, ...] = ("public", "operator")) -> Starlette:
    """One application of one part or of both."""
    configure()
    held = edge(settings)
    routes = [*_probes(held)]
    for part in parts:
        routes += ROUTES[part](held)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await run_in_threadpool(held.close)

    return Starlette(routes=routes, lifespan=lifespan)


def _public(held: Edge) -> list[BaseRoute]:
    def accept(arrived: Arrived) -> Verdict:
        verdict = held.intake.accept(arrived)
        if verdict.outcome == "accepted" and verdict.task_id is not None:
            held.bell.ring(verdict.task_id, arrived.source)
        return verdict

    links = from_settings(held.settings)
    pages = [
        *approve.routes(held.db, links, held.bell.ring, held.log),
        *answer.routes(held.db, links, held.bell.ring, held.log),
        *leave.routes(held.db, held.settings),
    ]
    largest = held.settings.webhook_max_body
    post = mails(held.intake, held.settings, held.bell.ring)
    taken = hooks(sources(held.settings), accept, lambda: datetime.now(UTC), largest, mail=post)
    return [*taken, *slack.routes(held), *pages]


ROUTES: Mapping[Part, Callable[[Edge], list[BaseRoute]]] = {"public": _public, "operator": api.routes}


def _probes(held: Edge) -> list[BaseRoute]:
    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        if await run_in_threadpool(held.db.answers):
            return PlainTextResponse("ok")
        return PlainTextResponse("the database does not answer", 503)

    return [Route("/livez", livez), Route("/readyz", readyz)]
