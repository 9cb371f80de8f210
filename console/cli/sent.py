"""The verb that shows what a model was sent."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from console.sent import Gone, sent

from .app import HOME, Home, Json, TaskId, cli, database, fail, say_json


@cli.command()
def prompt(
    task: TaskId,
    seq: Annotated[int, typer.Argument(help="The number of the event: of ModelAsked, or of what came of it.", min=1)],
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Write the bytes that a model was sent to standard output, and to standard error the files they came from.

    Exit code 5: they cannot be had any more, as when an event was redacted.
    """
    with database(home) as db:
        try:
            found = sent(db, str(task), seq)
        except Gone as gone:
            fail(5, f"The request of event {seq} cannot be shown as it was sent. {gone}")
    if found is None:
        fail(3, f"Task {task} has asked no model up to event {seq}. See: twelvefold events {task}")
    if as_json:
        return say_json(found.as_row())
    typer.echo(f"event {found.seq}: {found.model} ({found.role}), sha256 {found.request}", err=True)
    for part in found.parts:
        where = f"line {part['line']} of the system message, commit {part['commit'] or 'unknown'}"
        typer.echo(f"  {part['file']}  {part['hash']}  {where}", err=True)
    sys.stdout.buffer.write(found.body.encode())
    sys.stdout.buffer.flush()
