"""The verbs that show what a model saw."""

from __future__ import annotations

from typing import Annotated

import typer

from console.receipts import saw, told
from workers.store import receipts, threads

from .app import HOME, Home, Json, TaskId, cli, database, fail, say_json

Seq = Annotated[int, typer.Argument(help="The number of the question, or of an event after it.", min=1)]


@cli.command()
def receipt(task: TaskId, seq: Seq, as_json: Json = False, home: Home = HOME) -> None:
    """Show what a question to a model was made of: every event whole, in part, folded or dropped, with its tokens."""
    with database(home) as db:
        row = receipts.receipt(db, str(task), seq)
    if row is None:
        fail(3, f"No model was asked up to event {seq} of {task}. See its log: twelvefold events {task}")
    say_json(row) if as_json else typer.echo("\n".join(told(row)))


@cli.command()
def seen(
    task: TaskId,
    event: Annotated[int, typer.Option("--event", help="The number of the event.", min=1)],
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """List the questions to a model that came after an event, and how each of them showed it."""
    with database(home) as db:
        found = threads.task(db, str(task), None)
        if found is None or found["seq"] < event:
            fail(3, f"There is no event {event} of task {task}. See its log: twelvefold events {task}")
        rows = saw(db, str(task), event)
    if as_json:
        return say_json(rows)
    for row in rows:
        typer.echo(f"question {row['seq']:>5} {row['at']:%H:%M:%S}  {row['how']}")
