"""The verbs that only look. What they show of all tenants is for whoever has the database's password."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from time import sleep
from typing import Annotated, Any

import typer

from console import views
from console.migrate import ROOT
from console.story import held, story, told
from workers import registry
from workers.store import threads
from workers.store.database import Database

from .app import HOME, Home, Json, TaskId, cli, database, fail, say_json, settings_of

Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Most = Annotated[int, typer.Option("--most", help="At most so many.", min=1, max=10_000)]
LOOK_S = 0.2
State = Annotated[str | None, typer.Option(help="Only those.")]


@cli.command()
def tasks(
    status: Annotated[str | None, typer.Option(help="Only those, such as waiting.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    waiting: Annotated[str | None, typer.Option(help="Only what waits for this, such as approval.")] = None,
    tenant: Tenant = None,
    most: Most = 50,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """List tasks, newest first."""
    with database(home) as db:
        rows = threads.tasks(
            db, tenant, agents=None if agent is None else [agent], status=status, waiting_for=waiting, most=most
        )
    listed(rows, views.task, as_json)


@cli.command()
def events(
    task: TaskId,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is added, until Ctrl-C.")] = False,
    after: Annotated[int, typer.Option(help="Only what came after this number.", min=0)] = 0,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON value on each line.")] = False,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Show the log of one task."""
    if follow and as_json:
        fail(2, "What is followed has no end, so it is no JSON list. Use --jsonl.")
    with database(home) as db:
        rows = threads.events(db, str(task), after=after)
        if not rows and not follow and not after:
            fail(3, f"There is no task {task}, or nothing happened to it yet.")
        if threads.task(db, str(task), None) is None:
            fail(3, f"There is no task {task}. See them: twelvefold tasks")
        if as_json:
            return say_json(rows)
        for row in chain(rows, _added(db, str(task), rows[-1]["seq"] if rows else after) if follow else ()):
            say_json(row) if jsonl else typer.echo(views.line(row))


def _added(db: Database, task: str, seen: int) -> Iterator[dict[str, Any]]:
    """The events that are added from now on."""
    while True:
        for row in threads.events(db, task, after=seen):
            seen = row["seq"]
            yield row
        sleep(LOOK_S)


@cli.command()
def show(task: TaskId, as_json: Json = False, home: Home = HOME) -> None:
    """Show one task: where it stands, what it waits for, its budget, approvals, letters and last events."""
    settings = settings_of(home)
    agents = registry.load(settings.agent_modules)
    with database(home) as db:
        row = threads.task(db, str(task), None)
        if row is None:
            fail(3, f"There is no task {task}. See them: twelvefold tasks")
        found = story(db, agents, row, settings.tenant_concurrency)
    say_json(found) if as_json else typer.echo("\n".join(told(found)))


@cli.command()
def approvals(tenant: Tenant = None, most: Most = 50, as_json: Json = False, home: Home = HOME) -> None:
    """List the questions that wait for a decision, oldest first."""
    with database(home) as db:
        rows = threads.approvals(db, tenant, most=most)
    listed(rows, views.approval, as_json)


reached = typer.Typer(invoke_without_command=True)
cli.add_typer(reached, name="arrivals")


@reached.callback()
def arrivals(
    context: typer.Context,
    state: State = None,
    source: Annotated[str | None, typer.Option(help="Only from this source, such as github or api.")] = None,
    tenant: Tenant = None,
    most: Most = 50,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """List what reached us, newest first: accepted, ignored, failed or unclaimed, and why; and what holds its task."""
    if context.invoked_subcommand is not None:
        return
    settings = settings_of(home)
    agents = registry.load(settings.agent_modules)
    with database(home) as db:
        rows = threads.arrivals(db, tenant, state=state, source=source, most=most)
        for row in rows:
            mine = row["task_id"] if row["state"] == "accepted" else None
            row["held_by"] = held(db, agents, mine, settings.tenant_concurrency) if mine else []
    listed(rows, views.arrival, as_json)


def listed(rows: Iterable[dict[str, Any]], view: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    """Rows as lines or as JSON."""
    if as_json:
        return say_json(rows)
    for row in rows:
        typer.echo(view(row))


@cli.command()
def client() -> None:
    """Print the client of the control API: one file for your own program, standard library only."""
    typer.echo((ROOT / "console" / "client.py").read_text(encoding="utf-8"), nl=False)
