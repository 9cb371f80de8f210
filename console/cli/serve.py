"""The verbs that become a process of the fleet, and the one that brings its database up to date."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Annotated, NoReturn

import typer

from console.dev import LANES
from console.embedded.stand_ins import StandIns
from console.migrate import ROOT
from console.migrate import migrate as run_migrate
from console.timetable import declare

from .app import HOME, Home, cli, fail, settings_of

KEPT_ALIVE = 75
"""Seconds that an idle connection stays open: longer than the 60 s after which load balancers close theirs, since one
that the server closes first meets the next request with a broken pipe."""


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
    settings = settings_of(HOME)
    uvicorn.run(
        serves[only](settings), host=host, port=port, log_level="warning", access_log=False,
        timeout_keep_alive=KEPT_ALIVE, timeout_graceful_shutdown=max(1, round(settings.soft_shutdown)),
    )  # fmt: skip


@cli.command()
def mail_in(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    smtp_port: Annotated[int, typer.Option(help="Listen for SMTP on this port.")] = 0,
    lmtp_port: Annotated[int, typer.Option(help="Listen for LMTP on this port.")] = 0,
) -> None:
    """Take mails: over SMTP or LMTP from your own mail server, and from the mailbox at IMAP_HOST if that is set."""
    settings = settings_of(HOME)
    if not (smtp_port or lmtp_port or settings.imap_host):
        fail(2, "Say where mails come from: --lmtp-port 8024, --smtp-port 8025, or set IMAP_HOST.")
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        from console.mail_service import serve
    except ImportError as error:
        fail(1, f"{error.name} is not installed. Run: pip install 'twelvefold[mail-in]'")
    serve(settings, {"smtp": smtp_port, "lmtp": lmtp_port}, host, stopping)


@cli.command()
def flower(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 5555,
) -> None:
    """Serve Flower, read-only and behind the password in FLOWER_BASIC_AUTH (user:password) or FLOWER_BASIC_AUTH_FILE.

    Flower itself serves /metrics and /healthcheck to everybody who reaches it.
    """
    login = os.environ.get("FLOWER_BASIC_AUTH_FILE")
    if login is not None and Path(login).is_file():
        os.environ["FLOWER_BASIC_AUTH"] = Path(login).read_text(encoding="utf-8").strip()
    if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
        fail(2, "Set FLOWER_BASIC_AUTH to user:password; Flower is never served without one.")
    _become("flower", f"--address={host}", f"--port={port}", "--read-only", "--max-tasks=10000")


@cli.command()
def stand_ins(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of the pages and of the pipeline.")] = 8025,
    smtp_port: Annotated[int, typer.Option(help="The port that mails are sent to.")] = 1025,
    home: Home = HOME,
) -> None:
    """Serve what stands in for the outside while trying things out: a mail catcher and a pipeline that deploys nothing.

    Nobody has to log in to read the mails: keep it on loopback, or inside a network of one's own.
    """
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    home.mkdir(parents=True, exist_ok=True)
    with StandIns(home, port=port, smtp_port=smtp_port, host=host) as serving:
        typer.echo(f"Mails: {serving.mails}  Pipeline: {serving.service}/")
        stopping.wait()


@cli.command()
def migrate(home: Home = HOME) -> None:
    """Bring the database to the newest schema, as its owner (OWNER_DATABASE_URL), and the schedules in line with the
    agents.
    """
    settings = settings_of(home)
    owner = settings.owner_database_url or settings.database_url
    run_migrate(owner.get_secret_value())
    holds, gone = declare(settings)
    typer.echo(f"The schema is current. {holds} schedules are declared; {gone} are declared no more and disabled.")


def _become(*arguments: str) -> NoReturn:
    """Replace this process by Celery, so that signals reach it and nothing stands in between."""
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "workers.tasks", *arguments])
