"""The verbs for switches: freeze effects, stop what is new, and see what holds. `pause` and `resume` throw them too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from console import views
from workers.operate import Refused
from workers.store import switches as rows
from workers.switches import Kind, Switches

from .app import HOME, By, Home, Json, cli, database, fail, me, say_json

EVERYBODY = "*"
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
Scope = Annotated[str, typer.Argument(help="all, or agent:NAME.")]
Until = Annotated[str | None, typer.Option(help="It ends then, such as 2030-01-31T18:00+01:00.")]
For = Annotated[str | None, typer.Option("--for", help="It ends after so long: 90m, 2h or 3d.")]
Reason = Annotated[str, typer.Option(help="Why, for whoever looks; a model reads it of a freeze.")]
Tenant = Annotated[str, typer.Option(help="Only for this tenant; default for every one.")]


@cli.command()
def freeze(
    scope: Annotated[str, typer.Argument(help="all, agent:NAME or tool:NAME.")],
    until: Until = None, lasts: For = None, reason: Reason = "", tenant: Tenant = EVERYBODY,
    by: By = "", as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Stop effects and writes of a scope, and tell what had begun. The models are told until when and why."""
    thrown(
        home, "freeze", scope_of(scope), until=end_of(until, lasts), reason=reason, tenant=tenant, by=by,
        as_json=as_json,
    )  # fmt: skip


@cli.command()
def unfreeze(
    scope: Annotated[str, typer.Argument(help="The scope that was frozen.")],
    tenant: Tenant = EVERYBODY, as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """End a freeze."""
    lifted(home, "freeze", scope_of(scope), tenant=tenant, as_json=as_json)


intake = typer.Typer(no_args_is_help=True, help="Stop what is new, and let it in again. Nothing is lost.")
cli.add_typer(intake, name="intake")


@intake.command(name="stop")
def stop_intake(
    scope: Scope = "all", until: Until = None, lasts: For = None, reason: Reason = "", tenant: Tenant = EVERYBODY,
    by: By = "", as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Begin no new task of a scope; what has begun goes on. New ones are kept, and worked on in their order."""
    thrown(
        home, "intake", scope_of(scope), until=end_of(until, lasts), reason=reason, tenant=tenant, by=by,
        as_json=as_json,
    )  # fmt: skip


@intake.command(name="open")
def open_intake(
    scope: Scope = "all", tenant: Tenant = EVERYBODY, as_json: Json = False, home: Home = HOME
) -> None:  # fmt: skip
    """Begin new tasks of a scope again."""
    lifted(home, "intake", scope_of(scope), tenant=tenant, as_json=as_json)


@cli.command()
def switches(
    tenant: Annotated[str | None, typer.Option(help="Only what holds for this tenant.")] = None,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """List what is frozen, paused or stopped now."""
    with database(home) as db:
        found = rows.listed(db, tenant)
    if as_json:
        return say_json(found)
    for row in found:
        typer.echo(views.switch(row))


def thrown(
    home: Path, kind: Kind, scope: str, *, until: datetime | None, reason: str, tenant: str, by: str, as_json: bool
) -> None:
    """Throw a switch, and say what had begun."""
    with _switching(home) as held:
        found = held.throw(kind, scope, by=by or me(), until=until, reason=reason, tenant=tenant)
    begun = [{"id": task, "call": call, "tool": tool} for task, call, tool in found.begun]
    if as_json:
        return say_json({"kind": kind, "scope": scope, "tenant": tenant, "until": until, "begun": begun})
    typer.echo(f"{kind} of {scope} holds")
    for row in begun:
        typer.echo(f"had begun: {row['id']} call {row['call']} {row['tool']}")


def lifted(home: Path, kind: Kind, scope: str, *, tenant: str, as_json: bool) -> None:
    """Lift a switch, or say that there is none."""
    with _switching(home) as held:
        was = held.lift(kind, scope, tenant=tenant)
    if as_json:
        return say_json({"kind": kind, "scope": scope, "tenant": tenant, "held": was})
    typer.echo(f"{kind} of {scope} is lifted" if was else f"there was no {kind} of {scope}. See: twelvefold switches")


def scope_of(text: str) -> str:
    """The scope as it is stored: `all` is easier to type than a star."""
    if text not in ("all", "*") and not re.fullmatch(r"(agent|tool):\S+", text):
        fail(2, f"{text!r} is neither the id of a task nor a scope: all, agent:NAME or tool:NAME.")
    return "*" if text == "all" else text


def end_of(until: str | None, lasts: str | None) -> datetime | None:
    """When it ends, from one of the two ways to say so; None for no end."""
    if until is not None and lasts is not None:
        fail(2, "Give --until or --for, not both.")
    end: datetime | None = None
    if lasts is not None:
        found = re.fullmatch(r"([0-9]{1,4})([mhd])", lasts)
        if found is None:
            fail(2, f"--for takes 90m, 2h or 3d, not {lasts!r}.")
        end = datetime.now(UTC) + timedelta(**{UNITS[found[2]]: int(found[1])})
    if until is not None:
        try:
            end = datetime.fromisoformat(until)
        except ValueError:
            fail(2, f"{until!r} is no time. Write one such as 2030-01-31T18:00+01:00.")
        if end.tzinfo is None:
            fail(2, f"{until!r} has no time zone. Write one such as 2030-01-31T18:00+01:00.")
    if end is not None and end <= datetime.now(UTC):
        fail(2, "That time has passed. Name a later one.")
    return end


@contextmanager
def _switching(home: Path) -> Iterator[Switches]:
    with database(home) as db:
        try:
            yield Switches(db)
        except Refused as refused:
            fail(2, str(refused))
