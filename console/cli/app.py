"""What the verbs share: the application they register with, their common options, and how they fail."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn
from uuid import UUID

import typer

from console.migrate import ROOT
from workers import registry
from workers.operate import Operate, Refused
from workers.settings import ConfigurationError, Settings, load
from workers.store.database import UNAVAILABLE, Database
from workers.telemetry import kind_of

HOME = ROOT / ".twelvefold"
Home = Annotated[Path, typer.Option(help="Where `up` keeps data and logs.")]
TaskId = Annotated[UUID, typer.Argument(help="The id of the task, as `tasks` shows it.")]
By = Annotated[str, typer.Option(help="Who says so; default the user of this machine.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON value instead of a table.")]
cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def me() -> str:
    """Who acts when nobody is named."""
    return f"cli:{getpass.getuser()}"


def noted(home: Path) -> dict[str, str]:
    """What a running `up` noted of its environment."""
    note = home / "environment.json"
    found: dict[str, str] = json.loads(note.read_text()) if note.is_file() else {}
    return found


def settings_of(home: Path) -> Settings:
    """The settings; exit code 1 with every problem when they are not usable."""
    try:
        return load({**noted(home), **os.environ})
    except ConfigurationError as error:
        fail(1, str(error))


def database(home: Path) -> closing[Database]:
    """The database, closed at the end of the block."""
    return closing(Database(settings_of(home).database_url.get_secret_value(), size=2, application="twelvefold-cli"))


@contextmanager
def operating(home: Path) -> Iterator[Operate]:
    """The operators' verbs; what they refuse becomes a line and an exit code."""
    settings = settings_of(home)
    with database(home) as db:
        try:
            yield Operate(db, registry.load(settings.agent_modules))
        except Refused as refused:
            fail(3 if refused.code == 404 else 1, str(refused))


def say_json(value: Any) -> None:
    """One JSON value."""
    typer.echo(json.dumps(value, default=str, ensure_ascii=False))


def tell(became: str, as_json: bool, **members: Any) -> None:
    """What became of something: a line, or JSON with what it was done to."""
    say_json({**members, "became": became}) if as_json else typer.echo(became)


def fail(code: int, text: str) -> NoReturn:
    """Say what is wrong and end with this exit code."""
    typer.echo(text, err=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line. A database that cannot be reached is told in one line, not as a fault of ours."""
    try:
        cli()
    except UNAVAILABLE as error:
        sys.exit(f"The database cannot be reached ({kind_of(error)}). What is wrong: twelvefold doctor")
