"""The verbs of a machine of one's own: everything at once, the demo, and a release to try it with."""

from __future__ import annotations

import signal
from threading import Event

import typer

from console.demo import demo as run_demo
from console.dev import Stack
from console.sample import post_release

from .app import HOME, Home, cli, fail, noted


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
    mail = f"\n  mails     {stack.home / 'mail'}" if stack.mail else ""
    model = (
        "the real model" if "OPENAI_API_KEY" in stack.env else "the scripted model; set OPENAI_API_KEY for a real one"
    )
    return f"""
Twelvefold is up ({model}).

  webhooks  {stack.http}/hooks/github
  Flower    {stack.flower}{mail}
  logs      {stack.home / "logs"}

Try next, in another terminal:
  .venv/bin/twelvefold try             post a signed release; it becomes a deployment and a mail
  .venv/bin/twelvefold tasks           the tasks and where they stand
  .venv/bin/twelvefold events TASK     the log of one task
"""


@cli.command()
def demo() -> None:
    """Play one scenario in a fresh place, from a signed webhook to a mail; exit code 0 or 1."""
    raise typer.Exit(run_demo())


@cli.command(name="try")
def try_it(home: Home = HOME) -> None:
    """Post a signed release to what `up` runs."""
    found = noted(home)
    if "TWELVEFOLD_HTTP_PORT" not in found:
        fail(3, f"Nothing runs in {home}. Start it first: .venv/bin/twelvefold up")
    address = f"http://127.0.0.1:{found['TWELVEFOLD_HTTP_PORT']}"
    task_id = post_release(address, found["GITHUB_WEBHOOK_SECRETS"].split(",")[0], typer.echo)
    typer.echo(f"Follow it: .venv/bin/twelvefold events {task_id}")
