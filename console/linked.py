"""What pages behind signed links have in common: links are read, forms are ours, and whatever goes wrong is a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from html import escape
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triggers.body import read
from triggers.problem import Problem
from workers.links import Link, Links, NotALink
from workers.telemetry import Log, kind_of

from .page import page

Endpoint = Callable[[Request], Awaitable[Response]]
LONGEST_FORM = 16_384
FORM = "application/x-www-form-urlencoded"
NOWHERE = Problem(404, "Nothing here", "This link is not complete, or it was never made here. Open it from the mail.")
LATER = Problem(503, "Not now", "Something is out of order here. Open the link again in a minute to see what stands.")
TOO_OLD = Problem(410, "This link has expired", "Ask whoever runs the agent what became of the question.")


def routes(
    path: str, links: Links, log: Log, show: Callable[[str], Response], take: Callable[[str, dict[str, str]], Response]
) -> list[Route]:
    """A page below `path`: GET shows what the token stands for, POST takes the form. Both run in a thread."""

    async def get(request: Request) -> Response:
        return await run_in_threadpool(show, request.path_params["token"])

    async def post(request: Request) -> Response:
        _same_origin(request, links.url)
        form = _fields(request, await read(request, LONGEST_FORM))
        return await run_in_threadpool(take, request.path_params["token"], form)

    path += "{token}"
    return [Route(path, _told(get, log), methods=["GET"]), Route(path, _told(post, log), methods=["POST"])]


def opened(links: Links, token: str) -> Link:
    """What the token says. Raises Problem: 404 none of ours, 410 too old; both tell nothing about any task."""
    try:
        link = links.read(token)
    except NotALink:
        raise NOWHERE from None
    if link.expired(datetime.now(UTC)):
        raise TOO_OLD
    return link


def _told(endpoint: Endpoint, log: Log) -> Endpoint:
    """The endpoint with a page for everything that goes wrong. An error is logged without its text."""

    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Problem as problem:
            return _problem(problem)
        except Exception as error:
            log.error("approval_page_failed", error=kind_of(error))
            return _problem(LATER)

    return told


def _problem(problem: Problem) -> Response:
    return page(problem.title, f"<p>{escape(problem.detail)}</p>", problem.status)


def _same_origin(request: Request, url: str) -> None:
    """A form of another site is refused. `Origin: null` is ours: that is what no-referrer makes of it."""
    scheme, _, rest = url.partition("://")
    origin = request.headers.get("origin", "null")
    if origin not in ("null", f"{scheme}://{rest.partition('/')[0]}") or request.headers.get(
        "sec-fetch-site", "same-origin"
    ) not in ("same-origin", "none"):
        raise Problem(403, "Not from here", "Decide on the page that the link in the mail opens.")


def _fields(request: Request, body: bytes) -> dict[str, str]:
    """The fields of a form, each once. Raises Problem."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Problem(415, "Not a form", f"Send the fields of the page's form as {FORM}.")
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Problem(400, "Not a form", "The form cannot be read.") from None
    if any(len(values) > 1 for values in found.values()):
        raise Problem(400, "Not a form", "A field of the form is there twice.")
    return {name: values[0] for name, values in found.items()}
