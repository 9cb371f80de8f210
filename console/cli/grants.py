"""The verbs for approvals that hold for more than one call: `grants` lists them, `grants revoke ID` ends one."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from console import views
from workers.store import grants as stored

from .app import HOME, By, Home, Json, cli, database, me, operating, tell
from .look import listed

grants = typer.Typer(invoke_without_command=True, help="List approvals that hold for more than one call, and end one.")
cli.add_typer(grants, name="grants")


@grants.callback()
def list_(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    most: Annotated[int, typer.Option("--most", help="At most so many.", min=1, max=10_000)] = 50,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """List approvals that hold for more than one call, newest first: until when, how often used, by whom revoked."""
    if context.invoked_subcommand is not None:
        return
    with database(home) as db:
        rows = stored.listed(db, tenant, most=most)
    listed(rows, views.grant, as_json)


@grants.command()
def revoke(grant: UUID, by: By = "", as_json: Json = False, home: Home = HOME) -> None:
    """End a grant: what it approved is asked about again."""
    with operating(home) as operate:
        operate.revoke(str(grant), by=by or me())
    tell("revoked", as_json, id=str(grant))
