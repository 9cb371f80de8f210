"""The page behind the address in a digest: GET shows a button, POST ends the digests (RFC 8058, one click).

A mail program posts without a cookie, from nowhere and with no answer that it would follow; a scanner that opens the
link ends nothing.
"""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triggers.body import read
from triggers.problem import Problem
from workers import leaving
from workers.leaving import Reader
from workers.settings import Settings
from workers.store import digests
from workers.store.database import Database

from .page import page

LONGEST = 4_096


def routes(db: Database, settings: Settings) -> list[Route]:
    """`/u/{token}`."""

    async def show(request: Request) -> Response:
        reader = leaving.read(settings, request.path_params["token"])
        if reader is None:
            return _nothing()
        form = "<form method='post'><input type='hidden' name='List-Unsubscribe' value='One-Click'>"
        return page("Stop these letters?", f"<p>{_whose(reader)}</p>{form}<button>Stop them</button></form>")

    async def leave(request: Request) -> Response:
        reader = leaving.read(settings, request.path_params["token"])
        if reader is None:
            return _nothing()
        try:
            fields = parse_qs((await read(request, LONGEST)).decode("ascii", "replace"))
        except Problem as problem:
            return page(problem.title, f"<p>{escape(problem.detail)}</p>", problem.status)
        if fields.get("List-Unsubscribe") != ["One-Click"]:
            return page("Not understood", "<p>Send List-Unsubscribe=One-Click.</p>", 400)
        await run_in_threadpool(digests.unsubscribe, db, reader.tenant, reader.agent, reader.recipient)
        return page("Stopped", f"<p>No more of them: {_whose(reader)}</p>")

    path = f"{leaving.PATH}{{token}}"
    return [Route(path, show, methods=["GET"]), Route(path, leave, methods=["POST"])]


def _whose(reader: Reader) -> str:
    return f"Digests of {escape(reader.agent)} to {escape(reader.recipient)}."


def _nothing() -> Response:
    return page("Nothing here", "<p>This link is not complete, or it was never made here.</p>", 404)
