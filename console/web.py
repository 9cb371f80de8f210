"""The public web application: webhooks in, and two probes. It works with the broker down."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from time import monotonic

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from triggers.envelope import Arrived, Verdict
from triggers.source import GitHub, Source
from triggers.webhook import routes
from workers import registry
from workers.intake import Intake
from workers.lanes import Lanes
from workers.settings import Settings
from workers.store import alive
from workers.store.database import Database
from workers.store.sweeps import shown
from workers.telemetry import configure, logger

WINDOWS_S = 5.0


class Bell:
    """Rings for new tasks beside the requests, in a thread of its own: a sender never waits for the broker."""

    def __init__(self, db: Database, lanes: Lanes, settings: Settings) -> None:
        self._db, self._lanes, self._settings = db, lanes, settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bell")
        self._looked = -WINDOWS_S

    def ring(self, task_id: str, what: str) -> None:
        """Ring soon; when it fails the sweeper rings."""
        self._thread.submit(self._ring, task_id, what)

    def _ring(self, task_id: str, what: str) -> None:
        if monotonic() - self._looked > WINDOWS_S:
            self._lanes.windows.update(alive.windows(self._db, self._settings.dead_after))
            self._looked = monotonic()
        self._lanes.ring("steps", [(task_id, shown(task_id, what, 0, "arrived"))])


def sources(settings: Settings) -> Mapping[str, Source]:
    """The webhook sources that have a secret."""
    secrets = tuple(secret.get_secret_value() for secret in settings.github_secrets)
    return {"github": GitHub(settings.tenant, secrets)} if secrets else {}


def public(settings: Settings) -> Starlette:
    """The application that may face the internet: POST /hooks/{source}, GET /livez, GET /readyz."""
    configure()
    db = Database(settings.database_url.get_secret_value(), size=settings.db_pool, application="twelvefold-http")
    agents = registry.load(settings.agent_modules)
    lanes = Lanes(settings.broker_url.get_secret_value(), settings.lane_prefix)
    intake, bell = Intake(db, agents, logger(process="http")), Bell(db, lanes, settings)

    def accept(arrived: Arrived) -> Verdict:
        verdict = intake.accept(arrived)
        if verdict.outcome == "accepted" and verdict.task_id is not None:
            bell.ring(verdict.task_id, arrived.source)
        return verdict

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        if await run_in_threadpool(db.answers):
            return PlainTextResponse("ok")
        return PlainTextResponse("the database does not answer", 503)

    hooks = routes(sources(settings), accept, lambda: datetime.now(UTC))
    return Starlette(routes=[*hooks, Route("/livez", livez), Route("/readyz", readyz)])
