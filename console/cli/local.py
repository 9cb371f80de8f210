"""The verbs of a machine of one's own: everything at once, the demo, and a release to try it with."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Annotated

import typer

from console.demo import demo as run_demo
from console.dev import Stack
from console.sample import post, push, release

from .app import HOME, Home, cli, database, fail, noted


@cli.command()
def up(home: Home = HOME) -> None:
    """Start everything on this machine and keep it running until Ctrl-C; the data stay."""
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with Stack(home) as stack:
        typer.echo(_welcome(stack))
        stack.watch(stopping)
        typer.echo(f"Stopping; the data stay in {home}.")


def _welcome(stack: Stack) -> str:
    model = (
        "the real model" if stack.env.get("OPENAI_API_KEY") else "the scripted model; set OPENAI_API_KEY for a real one"
    )
    return f"""
Twelvefold is up ({model}).

  webhooks  {stack.http}/hooks/github
  API       {stack.http}/thread
            Authorization: Bearer {stack.token}
  mails     {stack.stand_ins.mails}
  pipeline  {stack.stand_ins.service}/  (it deploys nothing)
  Flower    {stack.flower}
  logs      {stack.home / "logs"}

Try, in another terminal:
  1. Let a release be deployed.
       .venv/bin/twelvefold try
     Then read the mail that asks, open its link, decide, and read the mail that answers.
  2. Kill a worker in the middle of it. Press "Keep answers back" on the page of the pipeline, approve another `try`,
       kill -9 $(pgrep -f twelvefold.answers)
     and press "Answer again": another worker goes on after about ten seconds, and there is still one deployment.
  3. Look at what happened, step by step.
       .venv/bin/twelvefold tasks
       .venv/bin/twelvefold events TASK
"""


@cli.command()
def demo() -> None:
    """Play one scenario in a fresh place, from two signed webhooks to a mail, with a kill; exit code 0 or 1."""
    raise typer.Exit(run_demo())


@cli.command(name="try")
def try_it(
    tag: Annotated[str, typer.Option(help="The tag of the release; default one that is new.")] = "", home: Home = HOME
) -> None:
    """Post a signed push and a signed release to what `up` runs."""
    found = noted(home)
    if "TWELVEFOLD_HTTP_PORT" not in found:
        fail(3, f"Nothing runs in {home}. Start it first: .venv/bin/twelvefold up")
    address, secret = f"http://127.0.0.1:{found['TWELVEFOLD_HTTP_PORT']}", found["GITHUB_WEBHOOK_SECRETS"].split(",")[0]
    pushed = post(address, secret, "push", push(), typer.echo)
    _rests(home, pushed)  # what a release brings has to be there when it is looked at
    released = post(address, secret, "release", release(tag or f"{datetime.now(UTC):%Y.%m.%d-%H%M%S}"), typer.echo)
    if _rests(home, released) == "waiting":
        typer.echo("It waits for a person: read the mail.")
    typer.echo(f"Follow it: .venv/bin/twelvefold events {released}")


def _rests(home: Path, task: str) -> str:
    """The status of a task once it goes on no more by itself, or after 20 s."""
    until = monotonic() + 20
    with database(home) as db:
        while True:
            row = db.rows("SELECT status FROM agent_tasks WHERE id = %(id)s", {"id": task})[0]
            if row["status"] != "ready" or monotonic() > until:
                return str(row["status"])
            sleep(0.1)
