"""The verbs for memory: what agents have kept about whom, and erasing it."""

from __future__ import annotations

from typing import Annotated

import typer

from workers.store import memories

from .app import HOME, Home, Json, cli, database, say_json, settings_of

memory = typer.Typer(no_args_is_help=True, help="What agents remember about their subjects.")
cli.add_typer(memory, name="memory")


@memory.command(name="list")
def list_memories(
    subject: Annotated[str | None, typer.Option(help="Only what is about this subject.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    most: Annotated[int, typer.Option(help="At most so many, the newest.")] = 50,
    as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """List what is remembered, newest first, with the call that kept it."""
    with database(home) as db:
        found = memories.listed(db, tenant, subject, most=most)
    if as_json:
        return say_json(found)
    for row in found:
        beware = "  nobody vouches for it" if row["tainted"] else ""
        typer.echo(f"{row['at']:%Y-%m-%d %H:%M}  {row['tenant']}  {row['subject']}  {row['text']}")
        typer.echo(f"    by {row['agent']}, call {row['seq']} of {row['task']}, from {row['sender'] or '-'}{beware}")


@memory.command()
def erase(
    subject: Annotated[str, typer.Option(help="Everything about this subject goes.")],
    tenant: Annotated[str | None, typer.Option(help="Of this tenant; default the configured one.")] = None,
    as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Forget everything about a subject. The logs of the tasks that kept it stay as they are."""
    whose = tenant or settings_of(home).tenant
    with database(home) as db:
        gone = memories.erase(db, tenant=whose, subject=subject)
    if as_json:
        return say_json({"tenant": whose, "subject": subject, "erased": gone})
    typer.echo(f"erased {gone} about {subject}")
