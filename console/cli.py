"""The command line. Every verb is a few lines over the services that the web application uses too.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 quarantined or corrupt.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated, Literal, NoReturn
from uuid import UUID

import typer

from workers import registry
from workers.operate import Operate, Refused
from workers.settings import ConfigurationError, Settings, load
from workers.store.database import Database

from . import views
from .demo import demo as run_demo
from .dev import LANES, Stack
from .migrate import ROOT
from .migrate import migrate as run_migrate
from .sample import post_release

HOME = ROOT / ".twelvefold"
Home = Annotated[Path, typer.Option(help="Where `up` keeps data and logs.")]
TaskId = Annotated[UUID, typer.Argument(help="The id of the task, as `tasks` shows it.")]
By = Annotated[str, typer.Option(help="Who says so; default the user of this machine.")]
cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
Json = Annotated[bool, typer.Option("--json", help="One JSON value instead of a table.")]


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
    noted = _noted(home)
    if "TWELVEFOLD_HTTP_PORT" not in noted:
        _fail(3, f"Nothing runs in {home}. Start it first: .venv/bin/twelvefold up")
    address = f"http://127.0.0.1:{noted['TWELVEFOLD_HTTP_PORT']}"
    task_id = post_release(address, noted["GITHUB_WEBHOOK_SECRETS"].split(",")[0], typer.echo)
    typer.echo(f"Follow it: .venv/bin/twelvefold events {task_id}")


@cli.command()
def worker(
    lane: Annotated[str, typer.Option(help="One of answers, steps, delivery.")] = "steps",
    slots: Annotated[int | None, typer.Option(help="Steps at the same time; twice what is in flight.")] = None,
) -> None:
    """Run one worker process. Each lane has processes, and so slots, of its own."""
    if lane not in LANES:
        _fail(2, f"{lane!r} is no lane. Use one of: {', '.join(LANES)}.")
    settings = _settings(HOME)
    queue = f"{settings.lane_prefix}.{lane}"
    _become(
        "worker", "--pool", "threads", "--concurrency", str(slots or settings.slots), "--queues", queue,
        "--hostname", f"{lane}-{os.getpid()}@%h", "--without-gossip", "--without-mingle", "--loglevel", "WARNING",
    )  # fmt: skip


@cli.command()
def http(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8080,
) -> None:
    """Serve the public application: webhooks and probes."""
    import uvicorn

    from .web import public

    uvicorn.run(public(_settings(HOME)), host=host, port=port, log_level="warning", access_log=False)


@cli.command()
def flower(port: Annotated[int, typer.Option(help="The port, on loopback.")] = 5555) -> None:
    """Serve Flower on loopback, read-only and behind the password in FLOWER_BASIC_AUTH (user:password)."""
    if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
        _fail(2, "Set FLOWER_BASIC_AUTH to user:password; Flower is never served without one.")
    _become("flower", "--address=127.0.0.1", f"--port={port}", "--read-only", "--max-tasks=10000")


@cli.command()
def migrate(home: Home = HOME) -> None:
    """Bring the database to the newest schema, as its owner (OWNER_DATABASE_URL)."""
    settings = _settings(home)
    owner = settings.owner_database_url or settings.database_url
    run_migrate(owner.get_secret_value())
    typer.echo("The schema is current.")


@cli.command()
def tasks(
    status: Annotated[str | None, typer.Option(help="Only those.")] = None, as_json: Json = False, home: Home = HOME
) -> None:
    """List tasks, newest first."""
    with _database(home) as db:
        rows = views.tasks(db, status)
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    for row in rows:
        waits = f" ({row['waiting_for']})" if row["waiting_for"] else ""
        about = row["business_entity_id"] or ""
        typer.echo(f"{row['id']}  {row['agent']:<12} {row['status'] + waits:<22} step {row['current_step']:<4} {about}")


@cli.command()
def events(task: TaskId, as_json: Json = False, home: Home = HOME) -> None:
    """Show the log of one task."""
    with _database(home) as db:
        rows = views.events(db, str(task))
    if not rows:
        _fail(3, f"There is no task {task}, or nothing happened to it yet.")
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    for row in rows:
        typer.echo(f"{row['seq']:>4} {row['at']:%H:%M:%S} {row['type']:<13} {views.short(row['data'])}")


@cli.command()
def approve(task: TaskId, call: int, by: By = "", home: Home = HOME) -> None:
    """Approve a call that waits for a person."""
    _decide(home, task, call, True, by)


@cli.command()
def deny(task: TaskId, call: int, comment: str = "", by: By = "", home: Home = HOME) -> None:
    """Reject a call that waits for a person."""
    _decide(home, task, call, False, by, comment)


@cli.command()
def settle(
    task: TaskId,
    call: int,
    happened: Annotated[str | None, typer.Option(help="It happened; the result as JSON.")] = None,
    did_not: Annotated[bool, typer.Option("--not", help="It did not happen.")] = False,
    abandon: Annotated[bool, typer.Option(help="Nobody can tell; the run ends.")] = False,
    by: By = "",
    home: Home = HOME,
) -> None:
    """Say what became of an effect in doubt."""
    if (happened is not None) + did_not + abandon != 1:
        _fail(2, "Say exactly one of --happened JSON, --not, --abandon.")
    result = None if happened is None else json.loads(happened)
    how: Literal["happened", "not", "abandoned"] = "not" if did_not else "abandoned" if abandon else "happened"
    with _operate(home) as operate:
        typer.echo(operate.settle(str(task), call, how=how, by=by or _me(), result=result))


@cli.command()
def cancel(task: TaskId, reason: str = "", by: By = "", home: Home = HOME) -> None:
    """Ask for the end of a task: the running effect finishes, no later one begins."""
    with _operate(home) as operate:
        typer.echo(operate.cancel(str(task), by=by or _me(), reason=reason))


@cli.command()
def pause(task: TaskId, home: Home = HOME) -> None:
    """Let nothing of a task begin."""
    with _operate(home) as operate:
        operate.pause(str(task))


@cli.command()
def resume(task: TaskId, home: Home = HOME) -> None:
    """End a pause."""
    with _operate(home) as operate:
        operate.resume(str(task))


@cli.command()
def retry(task: TaskId, by: By = "", home: Home = HOME) -> None:
    """Let a quarantined or parked task go on from where it stopped."""
    with _operate(home) as operate:
        operate.retry(str(task), by=by or _me())


def _decide(home: Path, task: UUID, call: int, approved: bool, by: str, comment: str = "") -> None:
    with _operate(home) as operate:
        typer.echo(operate.decide(str(task), call, approved=approved, by=by or _me(), comment=comment))


def _me() -> str:
    return f"cli:{getpass.getuser()}"


def _noted(home: Path) -> dict[str, str]:
    note = home / "environment.json"
    found: dict[str, str] = json.loads(note.read_text()) if note.is_file() else {}
    return found


def _settings(home: Path) -> Settings:
    try:
        return load({**_noted(home), **os.environ})
    except ConfigurationError as error:
        _fail(1, str(error))


def _database(home: Path) -> closing[Database]:
    return closing(Database(_settings(home).database_url.get_secret_value(), size=2, application="twelvefold-cli"))


@contextmanager
def _operate(home: Path) -> Iterator[Operate]:
    settings = _settings(home)
    with _database(home) as db:
        try:
            yield Operate(db, registry.load(settings.agent_modules))
        except Refused as refused:
            _fail(3 if refused.code == 404 else 1, str(refused))


def _become(*arguments: str) -> NoReturn:
    """Replace this process by Celery, so that signals reach it and nothing stands in between."""
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "workers.tasks", *arguments])


def _fail(code: int, text: str) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    cli()


if __name__ == "__main__":
    main()
