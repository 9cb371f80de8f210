"""The verbs that decide, answer and settle."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import typer

from console.again import NotAgain, again
from console.sources import sources
from twelvefold.canonical import canonical
from workers import registry
from workers.answers import Reply, answer
from workers.decisions import Terms
from workers.ids import uuid7
from workers.intake import Intake
from workers.operate import Refused
from workers.store import threads
from workers.telemetry import logger

from .app import HOME, By, Home, Json, TaskId, cli, database, fail, me, operating, settings_of, tell
from .look import reached


@cli.command()
def approve(
    task: TaskId,
    call: int,
    edit: Annotated[str | None, typer.Option(help="Arguments to change, as a JSON object.")] = None,
    hours: Annotated[int, typer.Option(help="Approve further calls too, for so long.")] = 0,
    same: Annotated[list[str] | None, typer.Option(help="Those in which this argument is the same.")] = None,
    this_task: Annotated[bool, typer.Option("--this-task", help="Those of this task alone.")] = False,
    by: By = "",
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Approve a call that waits for a person, as it was shown or with other arguments, and perhaps others like it."""
    if not hours and (same or this_task):
        fail(2, "Say with --hours for how long it shall hold.")
    terms = Terms(hours, this_task, tuple(same or ())) if hours else None
    _decide(home, task, call, True, by, as_json, edit=edit, grant=terms)


@reached.command("retry")
def read_again(arrival: int, as_json: Json = False, home: Home = HOME) -> None:
    """Read an arrival anew that failed to be read, or that no agent listened to."""
    settings = settings_of(home)
    with database(home) as db:
        try:
            intake = Intake(db, registry.load(settings.agent_modules), logger(process="cli"))
            verdict = again(db, intake, sources(settings), arrival)
        except NotAgain as refused:
            fail(3 if refused.code == 404 else 1, str(refused))
    became = f"{verdict.outcome}({verdict.reason})" if verdict.reason else verdict.outcome
    tell(became if verdict.task_id is None else f"{became}: task {verdict.task_id}", as_json, arrival=arrival,
         task_id=verdict.task_id)  # fmt: skip


@cli.command()
def deny(task: TaskId, call: int, comment: str = "", by: By = "", as_json: Json = False, home: Home = HOME) -> None:
    """Reject a call that waits for a person."""
    _decide(home, task, call, False, by, as_json, comment)


@cli.command()
def ask_back(task: TaskId, call: int, question: str, by: By = "", as_json: Json = False, home: Home = HOME) -> None:
    """Ask the agent about a call that waits for a person; it stays open, and once for longer."""
    with operating(home) as operate:
        said = operate.ask_back(str(task), call, question, by=by or me(), proof="override")
    tell(str(said), as_json, id=str(task), call=call)


@cli.command()
def respond(
    task: TaskId,
    text: str,
    call: Annotated[int | None, typer.Option(help="Which question, where more than one was asked.")] = None,
    by: By = "",
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Answer the question that a task asks; where none is open, write to the task."""
    settings, who = settings_of(home), by or me()
    with database(home) as db:
        row = threads.task(db, str(task), None) or fail(3, f"There is no task {task}.")
        asked = threads.asked(db, row["id"], row["tenant"], 0)
        if call is not None or any(question["open"] for question in asked if question["kind"] == "question"):
            try:
                said = answer(db, Reply(row["id"], text, who, "override", call=call))
            except Refused as refused:
                fail(3 if refused.code == 404 else 1, str(refused))
            return tell(str(said), as_json, id=str(task))
        intake = Intake(db, registry.load(settings.agent_modules), logger())
        verdict = intake.message(str(task), source="cli", key=str(uuid7()), text=text, sender=who, proof="cli")
    if verdict.outcome != "accepted":
        fail(1, f"The task takes no message: {verdict.reason}.")
    tell("message accepted", as_json, id=str(task))


@cli.command()
def settle(
    task: TaskId,
    call: int,
    happened: Annotated[str | None, typer.Option(help="It happened; the result as JSON.")] = None,
    did_not: Annotated[bool, typer.Option("--not", help="It did not happen.")] = False,
    abandon: Annotated[bool, typer.Option(help="Nobody can tell; the run ends.")] = False,
    by: By = "",
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Say what became of an effect in doubt."""
    if (happened is not None) + did_not + abandon != 1:
        fail(2, "Say exactly one of --happened JSON, --not, --abandon.")
    try:
        result = None if happened is None else json.loads(happened)
    except ValueError as error:
        fail(2, f"--happened takes the result as JSON, a text in quotes of its own: '\"done\"'. {error}")
    how: Literal["happened", "not", "abandoned"] = "not" if did_not else "abandoned" if abandon else "happened"
    with operating(home) as operate:
        tell(operate.settle(str(task), call, how=how, by=by or me(), result=result), as_json, id=str(task), call=call)


def _decide(
    home: Path,
    task: UUID,
    call: int,
    approved: bool,
    by: str,
    as_json: bool,
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
        tell(decision.state, as_json, id=str(task), call=call, by=decision.by, at=decision.at)
