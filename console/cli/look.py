"""The verbs that only look."""

from __future__ import annotations

from typing import Annotated

import typer

from console import views

from .app import HOME, Home, Json, TaskId, cli, database, fail, say_json


@cli.command()
def tasks(
    status: Annotated[str | None, typer.Option(help="Only those.")] = None, as_json: Json = False, home: Home = HOME
) -> None:
    """List tasks, newest first."""
    with database(home) as db:
        rows = views.tasks(db, status)
    if as_json:
        return say_json(rows)
    for row in rows:
        waits = f" ({row['waiting_for']})" if row["waiting_for"] else ""
        about = row["business_entity_id"] or ""
        typer.echo(f"{row['id']}  {row['agent']:<12} {row['status'] + waits:<22} step {row['current_step']:<4} {about}")


@cli.command()
def events(task: TaskId, as_json: Json = False, home: Home = HOME) -> None:
    """Show the log of one task."""
    with database(home) as db:
        rows = views.events(db, str(task))
    if not rows:
        fail(3, f"There is no task {task}, or nothing happened to it yet.")
    if as_json:
        return say_json(rows)
    for row in rows:
        typer.echo(f"{row['seq']:>4} {row['at']:%H:%M:%S} {row['type']:<13} {views.short(row['data'])}")
