"""The verbs for tokens of the control API."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, cast

import typer

from twelvefold.text import one_line
from workers import registry
from workers.store import tokens
from workers.store.tokens import ROLES, Role

from .app import HOME, Home, Json, cli, database, fail, say_json, settings_of, tell

token = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens of the control API.")
cli.add_typer(token, name="token")
Tenant = Annotated[str, typer.Option(help="The tenant; default the one of the settings.")]


@token.command()
def new(
    principal: Annotated[str, typer.Argument(help="Who acts with it, such as ann@example.org: decisions carry it.")],
    role: Annotated[list[str], typer.Option(help=f"One or more of {', '.join(ROLES)}; a viewer sees no content.")],
    agent: Annotated[list[str] | None, typer.Option(help="Only these agents; default all.")] = None,
    days: Annotated[float, typer.Option(help="How long it is valid.", min=0, max=3650)] = 90,
    tenant: Tenant = "",
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Make a token. Its secret is printed once; only a hash of it is kept."""
    unknown = sorted(set(role) - set(ROLES))
    if unknown:
        fail(2, f"{unknown[0]!r} is no role. Use some of: {', '.join(ROLES)}.")
    if not principal or one_line(principal) != principal:
        fail(2, "Name who acts with the token, in visible characters on one line, such as ann@example.org.")
    settings = settings_of(home)
    missing = set(agent or ()) - registry.load(settings.agent_modules).loaded.keys()
    if missing:
        fail(3, f"There is no agent {min(missing)!r}, so the token would open nothing. See them: twelvefold doctor")
    tenant = tenant or settings.tenant
    with database(home) as db:
        number, secret = tokens.add(
            db, tenant=tenant, principal=principal, roles=cast(list[Role], role), agents=agent or None,
            lasts=timedelta(days=days),
        )  # fmt: skip
    if as_json:
        return say_json({"id": number, "tenant": tenant, "principal": principal, "token": secret})
    typer.echo(secret)
    typer.echo(f"Token {number} of {principal}. Keep it now: it is not shown again.", err=True)


@token.command(name="list")
def list_(tenant: Tenant = "", as_json: Json = False, home: Home = HOME) -> None:
    """List the tokens of a tenant, without their secrets."""
    with database(home) as db:
        rows = tokens.listed(db, tenant or settings_of(home).tenant)
    if as_json:
        return say_json(rows)
    for row in rows:
        agents = ",".join(row["agents"]) if row["agents"] else "all agents"
        roles, until = ",".join(row["roles"]), f"until {row['expires_at']:%Y-%m-%d}"
        typer.echo(f"{row['id']:>4}  {row['state']:<8} {row['principal']:<28} {roles}  {agents}  {until}")


@token.command()
def revoke(number: int, tenant: Tenant = "", as_json: Json = False, home: Home = HOME) -> None:
    """End a token: the next request with it is refused."""
    with database(home) as db:
        found = tokens.revoke(db, tenant or settings_of(home).tenant, number)
    if not found:
        fail(3, f"There is no token {number}. See them: twelvefold token list")
    tell("revoked", True, id=number) if as_json else typer.echo(f"Token {number} is revoked.")
