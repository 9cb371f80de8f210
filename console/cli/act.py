"""The verbs that decide, answer and settle."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import typer

from twelvefold.canonical import canonical
from workers import registry
from workers.answers import Reply, answer
from workers.decisions import Terms
from workers.ids import uuid7
from workers.intake import Intake
from workers.operate import Refused
from workers.telemetry import logger

from .app import HOME, By, Home, TaskId, cli, database, fail, me, operating, settings_of


@cli.command()
def approve(
    task: TaskId,
    call: int,
    edit: Annotated[str | None, typer.Option(help="Arguments to change, as a JSON object.")] = None,
    hours: Annotated[int, typer.Option(help="Approve further calls too, for so long.")] = 0,
    same: Annotated[list[str] | None, typer.Option(help="Those in which this argument is the same.")] = None,
    this_task: Annotated[bool, typer.Option("--this-task", help="Those of this task alone.")] = False,
    by: By = "",
    home: Home = HOME,
) -> None:
    """Approve a call that waits for a person, as it was shown or with other arguments, and perhaps others like it."""
    if not hours and (same or this_task):
        fail(2, "Say with --hours for how long it shall hold.")
    terms = Terms(hours, this_task, tuple(same or ())) if hours else None
    _decide(home, task, call, True, by, edit=edit, grant=terms)


@cli.command()
def revoke(grant: UUID, by: By = "", home: Home = HOME) -> None:
    """End a grant: what it approved is asked about again."""
    with operating(home) as operate:
        operate.revoke(str(grant), by=by or me())


@cli.command()
def deny(task: TaskId, call: int, comment: str = "", by: By = "", home: Home = HOME) -> None:
    """Reject a call that waits for a person."""
    _decide(home, task, call, False, by, comment)


@cli.command()
def ask_back(task: TaskId, call: int, question: str, by: By = "", home: Home = HOME) -> None:
    """Ask the agent about a call that waits for a person; it stays open, and once for longer."""
    with operating(home) as operate:
        typer.echo(operate.ask_back(str(task), call, question, by=by or me(), proof="override"))


@cli.command()
def respond(
    task: TaskId,
    text: str,
    call: Annotated[int | None, typer.Option(help="Which question, where more than one was asked.")] = None,
    by: By = "",
    home: Home = HOME,
) -> None:
    """Answer the question that a task asks; where none is open, write to the task."""
    settings, who = settings_of(home), by or me()
    with database(home) as db:
        try:
            typer.echo(answer(db, Reply(str(task), text, who, "override", call=call)))
            return
        except Refused as refused:
            if refused.code != 404 or call is not None:
                fail(3 if refused.code == 404 else 1, str(refused))
        intake = Intake(db, registry.load(settings.agent_modules), logger())
        said = intake.message(str(task), source="cli", key=str(uuid7()), text=text, sender=who, proof="cli")
    if said.outcome != "accepted":
        fail(3 if said.reason == "unknown_task" else 1, f"The task takes no message: {said.reason}.")
    typer.echo("message accepted")


@cli.command()
def settle(
    task: TaskId,
    call: int,
    happened: Annotated[str | None, typer.Option(help="It happened; the result as JSON.")] = None,
    did_not: Annotated[bool, typer.Option("--not", help="It did not happen.")] = False,
    abandon: Annotated[bool, typer.Option(help="Nobody can tell; the run ends.")] = False,
    by: By = "",
    home: Home = HOME,
) -> None:
    """Say what became of an effect in doubt."""
    if (happened is not None) + did_not + abandon != 1:
        fail(2, "Say exactly one of --happened JSON, --not, --abandon.")
    result = None if happened is None else json.loads(happened)
    how: Literal["happened", "not", "abandoned"] = "not" if did_not else "abandoned" if abandon else "happened"
    with operating(home) as operate:
        typer.echo(operate.settle(str(task), call, how=how, by=by or me(), result=result))


def _decide(
    home: Path,
    task: UUID,
    call: int,
    approved: bool,
    by: str,
    comment: str = "",
    edit: str | None = None,
    grant: Terms | None = None,
) -> None:
    try:
        edited = None if edit is None else canonical(json.loads(edit, parse_float=Decimal))
    except ValueError as error:
        fail(2, f"--edit takes a JSON object, such as '{{\"amount\": 5}}': {error}")
    with operating(home) as operate:
        by = by or me()
        decision = operate.decide(
            str(task), call, approved=approved, by=by, comment=comment, proof="override", edited=edited, grant=grant
        )
        typer.echo(decision.state)
