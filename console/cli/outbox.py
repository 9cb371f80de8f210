"""The verbs of the outbox: what goes out, what nobody tries any more, and letting it go again."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from console import views
from workers.store import outbox as stored
from workers.store import paces, threads

from .app import HOME, Home, Json, cli, database, fail, tell
from .look import Most, State, Tenant, listed

box = typer.Typer(invoke_without_command=True, no_args_is_help=False)
cli.add_typer(box, name="outbox")


@box.callback()
def outbox(
    context: typer.Context, state: State = None, tenant: Tenant = None, most: Most = 50, as_json: Json = False,
    home: Home = HOME,
) -> None:  # fmt: skip
    """List letters, newest first: pending, sending, sent, failed or unknown."""
    if context.invoked_subcommand is not None:
        return
    with database(home) as db:
        rows = threads.letters(db, tenant, state=state, most=most)
    listed(rows, views.letter, as_json)


@box.command()
def dead(tenant: Tenant = None, most: Most = 50, as_json: Json = False, home: Home = HOME) -> None:
    """List letters that nobody tries any more, and why: failed, and unknown ones that may have gone out."""
    with database(home) as db:
        rows = stored.dead(db, tenant, most=most)
    listed(rows, views.letter, as_json)


@box.command()
def requeue(
    letter: Annotated[UUID, typer.Argument(help="The id of the letter, as `outbox dead` shows it.")],
    twice: Annotated[bool, typer.Option("--twice", help="Also one that may have gone out already.")] = False,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Let a dead letter go again, as the same message: under its id, from the first attempt on."""
    with database(home) as db:
        if not stored.requeue(db, str(letter), twice=twice):
            fail(1, f"{letter} is no dead letter, or it may have gone out already: then add --twice. See: outbox dead")
    tell("pending", as_json, id=str(letter))


@box.command(name="open")
def open_(
    channel: Annotated[str, typer.Argument(help="The channel, such as webhook.")],
    destination: Annotated[str, typer.Argument(help="The target that answered 410.")],
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Let letters go to a destination again that wanted no more; its dead letters are requeued one by one."""
    with database(home) as db:
        if not paces.reopen(db, channel, destination):
            fail(1, f"{destination} ({channel}) is not closed.")
    tell("open", as_json, channel=channel, destination=destination)
