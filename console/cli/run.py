"""The verb that opens a task from the command line and, when asked to, watches it until a person has to act."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from console import views
from triggers.body import parse
from triggers.problem import Problem
from twelvefold.agent import Message
from twelvefold.text import inspect_json
from workers import registry
from workers.ids import uuid7
from workers.intake import Intake
from workers.store import threads
from workers.store.database import Database
from workers.store.inbox import Entry
from workers.telemetry import logger

from .app import HOME, Home, Json, cli, database, fail, me, say_json, settings_of

LOOK_S = 0.2
CODES = {"done": 0, "waiting": 0, "quarantined": 4}


@cli.command()
def run(
    agent: Annotated[str, typer.Argument(help="The name of the agent.")],
    given: Annotated[str, typer.Option("--input", help="What it accepts, as JSON; a JSON string is a message.")],
    wait: Annotated[bool, typer.Option("--wait", help="Watch until it ends or a person has to act.")] = False,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Open a task of an agent. With --wait the code is 0 for done or waiting, 1 failed or cancelled, 4 quarantined."""
    settings = settings_of(home)
    agents = registry.load(settings.agent_modules)
    if agent not in agents.loaded:
        fail(3, f"There is no agent {agent!r}. There are: {', '.join(sorted(agents.loaded))}.")
    value, cleaned = _read(given)
    entry = Entry(
        tenant=settings.tenant, source="cli", key=str(uuid7()), kind="message", type="run", sender=me(), proof="cli",
        cleaned=cleaned,
    )  # fmt: skip
    with database(home) as db:
        try:
            opened = Intake(db, agents, logger()).open(agents[agent], entry, value)
        except ValidationError as error:
            fail(2, f"That is not what {agent} accepts: {error}\nIt accepts: {_schema(agents[agent].agent.accepted)}")
        assert opened.task_id is not None
        if not as_json:
            typer.echo(opened.task_id)
        row = _watch(db, opened.task_id, quiet=as_json) if wait else threads.task(db, opened.task_id, None)
    assert row is not None
    if as_json:
        say_json({name: row[name] for name in ("id", "agent", "status", "waiting_for", "reason", "outcome")})
    raise typer.Exit(CODES.get(row["status"], 1) if wait else 0)


def _read(given: str) -> tuple[Any, int]:
    try:
        gate = inspect_json(parse(given.encode("utf-8", "surrogateescape"), "application/json"))
    except Problem as problem:
        fail(2, f"--input: {problem.detail} A message is a JSON string in quotes of the shell: --input '\"hello\"'")
    value = Message(text=gate.value, sender=me()) if isinstance(gate.value, str) else gate.value
    return value, gate.changed


def _schema(accepted: Any) -> str:
    return json.dumps(accepted.json_schema(), ensure_ascii=False)


def _watch(db: Database, task_id: str, *, quiet: bool) -> dict[str, Any] | None:
    """Tell each event until the task rests. Ctrl-C ends the watching, never the task."""
    told = 0
    while True:
        rests = bool(threads.resting(db, [task_id]))
        for row in threads.events(db, task_id, after=told):
            told = row["seq"]
            if not quiet:
                typer.echo(views.line(row))
        if rests:
            return threads.task(db, task_id, None)
        time.sleep(LOOK_S)
