"""The verbs for schedules: see them and their next times, make, edit, pause, resume and backfill them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from console.timetable import shown
from twelvefold.bindings import CronBinding
from twelvefold.errors import DeclarationError
from twelvefold.text import clean
from workers import registry
from workers.decisions import Refused
from workers.intake import Intake
from workers.store import schedules as rows
from workers.telemetry import logger
from workers.timetable import Timetable

from .app import HOME, By, Home, Json, cli, database, fail, me, say_json, settings_of

schedules = typer.Typer(no_args_is_help=True, help="See, make, edit, pause, resume and backfill schedules.")
cli.add_typer(schedules, name="schedules")
Name = Annotated[str, typer.Argument(help="Agent and name, such as deploy.sweep.")]
Tenant = Annotated[str, typer.Option(help="The tenant; default the one of the settings.")]
Tz = Annotated[str | None, typer.Option(help="The time zone, such as Europe/Berlin; default UTC.")]
Dst = Annotated[str | None, typer.Option(help="When the clocks change: vixie (default), skip or utc.")]
Overlap = Annotated[str | None, typer.Option(help="While the last task runs: skip (default), buffer_one or allow.")]
CatchUp = Annotated[str | None, typer.Option(help="What was missed: latest (default), all or none is made up for.")]
Window = Annotated[int | None, typer.Option(help="No older than so many seconds; default 3600.", min=0)]
Jitter = Annotated[int | None, typer.Option(help="Up to so many seconds are added; default 0.", min=0)]
Message = Annotated[str | None, typer.Option(help="Opens each task with this message in the place of a Tick.")]
Event = Annotated[str | None, typer.Option(help="Opens each task with this event, as JSON.")]


@schedules.command(name="list")
def list_(tenant: Tenant = "", as_json: Json = False, home: Home = HOME) -> None:
    """List the schedules of a tenant, each with its next five times."""
    with _table(home, tenant) as (table, whose):
        found = [shown(table, each) for each in rows.listed(table.db, whose)]
    say_json(found) if as_json else typer.echo("\n".join(line for each in found for line in _lines(each)))


@schedules.command()
def new(
    agent: Annotated[str, typer.Argument(help="The agent that gets a task each time.")],
    name: Annotated[str, typer.Argument(help="A name for it, such as sweep.")],
    cron: Annotated[str, typer.Argument(help="Five fields, such as '0 9 * * 1-5', or @daily.")],
    tz: Tz = None, dst: Dst = None, overlap: Overlap = None, catch_up: CatchUp = None, window: Window = None,
    jitter: Jitter = None, message: Message = None, event: Event = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would be.")] = False,
    tenant: Tenant = "", as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Make a schedule, and say in words what it means and when it fires next."""
    times = _given(tz=tz, dst=dst, overlap=overlap, catch_up=catch_up, window=window, jitter=jitter)
    with _table(home, tenant) as (table, whose):
        make = table.preview if dry_run else table.new
        found = make(whose, agent, CronBinding(name, cron, **times), _opens(message, event))
        _tell(shown(table, found), as_json)


@schedules.command()
def edit(
    name: Name, cron: Annotated[str | None, typer.Option(help="Other times.")] = None,
    tz: Tz = None, dst: Dst = None, overlap: Overlap = None, catch_up: CatchUp = None, window: Window = None,
    jitter: Jitter = None, message: Message = None, event: Event = None, tenant: Tenant = "", as_json: Json = False,
    home: Home = HOME,
) -> None:  # fmt: skip
    """Change a schedule that was made here. One that an agent declares is changed in its code."""
    opens = _opens(message, event)
    changes = _given(
        cron=cron, tz=tz, dst=dst, overlap=overlap, catch_up=catch_up, window=window, jitter=jitter, event=opens
    )
    if not changes:
        fail(2, "Say what changes, such as --cron '0 9 * * 1-5'.")
    with _table(home, tenant) as (table, whose):
        _tell(shown(table, table.edit(whose, name, **changes)), as_json)


@schedules.command()
def pause(name: Name, by: By = "", tenant: Tenant = "", as_json: Json = False, home: Home = HOME) -> None:
    """Fire nothing until it is resumed. Each time that passes is kept as paused: twelvefold arrivals."""
    with _table(home, tenant) as (table, whose):
        _tell(shown(table, table.pause(whose, name, by or me())), as_json)


@schedules.command()
def resume(name: Name, tenant: Tenant = "", as_json: Json = False, home: Home = HOME) -> None:
    """Fire again, from the next time on; what lies in the pause is not made up for, unless by `backfill`."""
    with _table(home, tenant) as (table, whose):
        _tell(shown(table, table.resume(whose, name)), as_json)


@schedules.command()
def backfill(
    name: Name,
    begin: Annotated[str, typer.Option(help="From this time on, such as 2030-01-31T18:00+01:00.")],
    end: Annotated[str, typer.Option(help="Up to this time, itself counted.")],
    tenant: Tenant = "", as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Open the tasks of times that have passed and opened none, at most 100; each is opened once."""
    with _table(home, tenant) as (table, whose):
        found = table.backfill(whose, name, _time(begin), _time(end))
    if as_json:
        return say_json([{"at": at, "became": became} for at, became in found])
    for at, became in found:
        typer.echo(f"{at:%Y-%m-%d %H:%M} UTC  {became}")


def _given(**values: Any) -> dict[str, Any]:
    """What was said, seconds as durations."""
    found = {name: value for name, value in values.items() if value is not None}
    return {name: timedelta(seconds=v) if name in ("window", "jitter") else v for name, v in found.items()}


def _opens(message: str | None, event: str | None) -> Any:
    if message is not None and event is not None:
        fail(2, "Give --message or --event, not both.")
    if event is None:
        return None if message is None else {"text": clean(message)}
    try:
        return json.loads(event)
    except ValueError:
        fail(2, """--event takes JSON, such as '{"text": "look around"}'.""")


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        fail(2, f"{text!r} is no time. Write one such as 2030-01-31T18:00+01:00.")
    if found.tzinfo is None:
        fail(2, f"{text!r} has no time zone. Write one such as 2030-01-31T18:00+01:00.")
    return found


@contextmanager
def _table(home: Path, tenant: str) -> Iterator[tuple[Timetable, str]]:
    settings = settings_of(home)
    with database(home) as db:
        try:
            intake = Intake(db, registry.load(settings.agent_modules), logger(process="cli"))
            yield Timetable(intake), tenant or settings.tenant
        except DeclarationError as error:
            fail(2, str(error))
        except Refused as refused:
            fail(3 if refused.code == 404 else 1, str(refused))


def _tell(found: dict[str, Any], as_json: bool) -> None:
    say_json(found) if as_json else typer.echo("\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    whose = "declared" if found["declared"] else "made by hand"
    by = f" by {found['paused_by']}" if found["paused_by"] else ""
    yield f"{found['name']:<28} {found['state']}{by}, {whose}: {found['means']} ({found['cron']})"
    yield f"      overlap {found['overlap']}, catch-up {found['catch_up']} within {found['window']} s"
    if found["held_fire"]:
        yield f"      the one of {found['held_fire']:%Y-%m-%d %H:%M} UTC waits for the last to end"
    yield f"      next {'  '.join(found['next'])}"
