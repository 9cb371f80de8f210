"""The verbs that become a process of the fleet, and the one that brings its database up to date."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from console.dev import LANES
from console.migrate import ROOT
from console.migrate import migrate as run_migrate

from .app import HOME, Home, cli, fail, settings_of


@cli.command()
def worker(
    lane: Annotated[str, typer.Option(help="One of answers, steps, delivery.")] = "steps",
    slots: Annotated[int | None, typer.Option(help="Steps at the same time; twice what is in flight.")] = None,
) -> None:
    """Run one worker process. Each lane has processes, and so slots, of its own."""
    if lane not in LANES:
        fail(2, f"{lane!r} is no lane. Use one of: {', '.join(LANES)}.")
    settings = settings_of(HOME)
    queue = f"{settings.lane_prefix}.{lane}"
    _become(
        "worker", "--pool", "threads", "--concurrency", str(slots or settings.slots), "--queues", queue,
        "--hostname", f"{lane}-{os.getpid()}@%h", "--without-gossip", "--without-mingle", "--loglevel", "WARNING",
    )  # fmt: skip


@cli.command()
def http(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8080,
    only: Annotated[str, typer.Option(help="Only one of the two applications: public or operator.")] = "",
) -> None:
    """Serve webhooks and approval pages (public) and the control API (operator), on one port unless told otherwise."""
    import uvicorn

    from console.web import application, operator, public

    serves = {"": application, "public": public, "operator": operator}
    if only not in serves:
        fail(2, f"{only!r} is none of the two applications. Use --only public or --only operator, or leave it out.")
    # no access log: the path of an approval page holds its token
    uvicorn.run(serves[only](settings_of(HOME)), host=host, port=port, log_level="warning", access_log=False)


@cli.command()
def flower(port: Annotated[int, typer.Option(help="The port, on loopback.")] = 5555) -> None:
    """Serve Flower on loopback, read-only and behind the password in FLOWER_BASIC_AUTH (user:password)."""
    if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
        fail(2, "Set FLOWER_BASIC_AUTH to user:password; Flower is never served without one.")
    _become("flower", "--address=127.0.0.1", f"--port={port}", "--read-only", "--max-tasks=10000")


@cli.command()
def migrate(home: Home = HOME) -> None:
    """Bring the database to the newest schema, as its owner (OWNER_DATABASE_URL)."""
    settings = settings_of(home)
    owner = settings.owner_database_url or settings.database_url
    run_migrate(owner.get_secret_value())
    typer.echo("The schema is current.")


def _become(*arguments: str) -> NoReturn:
    """Replace this process by Celery, so that signals reach it and nothing stands in between."""
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "workers.tasks", *arguments])
