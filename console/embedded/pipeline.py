"""A pipeline that deploys nothing, for trying Twelvefold out: it honours idempotency keys and shows what it was asked.

    POST /deployments   Idempotency-Key: KEY, {"repository", "tag", "environment"}
                        201 and a new run; 200 and the same run when the key was seen; 422 for the key with another body
    POST /hold          from now on requests are carried out, but their answers are kept back
    POST /release       send the answers kept back, and answer at once again
    GET  /deployments   what was deployed, as JSON
    GET  /              the same and every request, as a page

What was deployed is kept in a file, so that a key is honoured after a restart too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from secrets import token_hex

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from console.page import page
from triggers.body import read
from triggers.problem import Problem

LONGEST = 16_384
LONGEST_HOLD_S = 600.0


class Wanted(BaseModel):
    """What a request asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: str = Field(min_length=1, max_length=200)
    tag: str = Field(min_length=1, max_length=200)
    environment: str = Field(min_length=1, max_length=50)


@dataclass(frozen=True, slots=True)
class Run:
    """One deployment."""

    run: str
    key: str
    repository: str
    tag: str
    environment: str
    at: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came in, and what it came to: performed, repeated or refused."""

    at: str
    key: str
    came_to: str


class Pipeline:
    """The pipeline's memory; `journal` is the file that keeps it. Safe to use from several threads."""

    def __init__(self, journal: Path | None = None) -> None:
        self._journal = journal
        self._changed = threading.Condition()
        self._held, self._standing = False, 0
        self._asked: list[Asked] = []
        lines = journal.read_text().splitlines() if journal and journal.exists() else []
        self._runs = [Run(**json.loads(line)) for line in lines]

    @property
    def deployments(self) -> list[Run]:
        """What was deployed, in order."""
        with self._changed:
            return list(self._runs)

    @property
    def requests(self) -> list[Asked]:
        """Every request since the start, in order."""
        with self._changed:
            return list(self._asked)

    def deploy(self, key: str, wanted: Wanted) -> tuple[Run, bool] | None:
        """Deploy once for each key: the run, and whether it is new; None when the key stands for something else."""
        with self._changed:
            known = next((run for run in self._runs if run.key == key), None)
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            same = known is None or Wanted.model_validate(_wanted(known)) == wanted
            self._asked.append(Asked(now, key, "performed" if known is None else "repeated" if same else "refused"))
            if known is None:
                known = Run(run=f"run-{len(self._runs) + 1}-{token_hex(2)}", key=key, at=now, **wanted.model_dump())
                self._keep(known)
                new = True
            else:
                new = False
            self._stand()
            return (known, new) if same else None

    def _keep(self, run: Run) -> None:
        if self._journal is not None:
            with self._journal.open("a") as file:
                file.write(json.dumps(asdict(run)) + "\n")
        self._runs.append(run)

    def _stand(self) -> None:
        self._standing += 1
        self._changed.notify_all()
        self._changed.wait_for(lambda: not self._held, LONGEST_HOLD_S)
        self._standing -= 1

    def hold(self) -> None:
        """From now on keep the answers back."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Send what was kept back."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def stands(self, count: int, timeout: float) -> bool:
        """Wait until so many answers are kept back, those for dead clients among them; False after `timeout` s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._held and self._standing >= count, timeout)


def _wanted(run: Run) -> dict[str, str]:
    return {"repository": run.repository, "tag": run.tag, "environment": run.environment}


def routes(pipeline: Pipeline) -> list[Route]:
    """The pipeline over HTTP."""

    async def deploy(request: Request) -> Response:
        key = request.headers.get("Idempotency-Key", "")
        try:
            wanted = Wanted.model_validate_json(await read(request, LONGEST))
        except (ValidationError, Problem):
            return JSONResponse({"error": "Send repository, tag and environment as JSON."}, 400)
        if not key:
            return JSONResponse({"error": "Send an Idempotency-Key: nothing is deployed twice by accident."}, 400)
        done = await run_in_threadpool(pipeline.deploy, key, wanted)
        if done is None:
            return JSONResponse({"error": "This Idempotency-Key stands for another deployment."}, 422)
        run, new = done
        return JSONResponse(asdict(run), 201 if new else 200)

    async def deployments(_: Request) -> Response:
        return JSONResponse([asdict(run) for run in pipeline.deployments])

    async def show(_: Request) -> Response:
        return page("Pipeline (deploys nothing)", _page(pipeline))

    def switch(name: str) -> Route:
        async def act(_: Request) -> Response:
            {"hold": pipeline.hold, "release": pipeline.release}[name]()
            return RedirectResponse("./", 303)

        return Route(f"/{name}", act, methods=["POST"])

    return [
        Route("/deployments", deploy, methods=["POST"]),
        Route("/deployments", deployments),
        Route("/", show),
        switch("hold"),
        switch("release"),
    ]


def _page(pipeline: Pipeline) -> str:
    runs = [(run.run, run.repository, run.tag, run.environment, run.at) for run in reversed(pipeline.deployments)]
    asked = [(one.at, one.key, one.came_to) for one in reversed(pipeline.requests)]
    return (
        "<form method='post' action='hold'><button>Keep answers back</button></form>"
        "<form method='post' action='release'><button>Answer again</button></form>"
        f"<h2>Deployments</h2>{_table(('Run', 'Repository', 'Tag', 'Environment', 'At'), runs)}"
        f"<h2>Requests since the start</h2>{_table(('At', 'Idempotency-Key', 'Came to'), asked)}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None yet.</p>"
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
