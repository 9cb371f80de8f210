"""The verb that looks whether everything is there."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from console import doctor as checks
from workers.settings import ConfigurationError, load

from .app import HOME, Home, Json, cli, noted, say_json

MARKS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@cli.command()
def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Ask the model what its endpoint can do, and keep it.")
    ] = False,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Check settings, database, role, workers, broker, agents and mail; exit code 1 when something is wrong."""
    try:
        settings = load({**noted(home), **os.environ})
    except ConfigurationError as error:
        finding = checks.Finding("settings", "wrong", str(error))
        if as_json:
            say_json({"settings": None, "findings": [finding.as_row()]})
        else:
            typer.echo(f"{MARKS['wrong']} settings  {finding.text}")
        raise typer.Exit(1) from None
    found = []
    if not as_json:
        for name, value in settings.masked().items():
            typer.echo(f"      {name} = {value}")
    for finding in checks.examine(settings, ask_model=probe):
        found.append(finding)
        if not as_json:
            typer.echo(f"{MARKS[finding.state]} {finding.what:<9} {finding.text}")
    if as_json:
        say_json({"settings": settings.masked(), "findings": [finding.as_row() for finding in found]})
    raise typer.Exit(any(finding.state == "wrong" for finding in found))
