"""The verb that tries an agent on its cases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from twelvefold.errors import DeclarationError, Fatal, Transport
from workers import registry
from workers.evals import Run, cases, evaluate, scores
from workers.wiring import asker

from .app import HOME, Home, Json, cli, fail, say_json, settings_of


@cli.command(name="eval")
def eval_(
    agent: Annotated[str, typer.Argument(help="The name of the agent; its cases stand in evals/*.json of its folder.")],
    runs: Annotated[int, typer.Option(help="How often each case is tried.", min=1, max=1000)] = 1,
    threshold: Annotated[float, typer.Option(help="The share that has to pass.", min=0, max=1)] = 1.0,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Try an agent on its cases with the configured model; no tool runs. Exit code 1 when too few pass."""
    settings = settings_of(home)
    agents = registry.load(settings.agent_modules)
    loaded = agents.loaded.get(agent)
    if loaded is None or loaded.folder is None:
        fail(3, f"There is no agent {agent}. There are: {', '.join(sorted(agents.loaded))}.")
    done: list[Run] = []
    try:
        found = cases(loaded.folder)
        if not found:
            fail(3, f"{agent} has no cases. Write the first one: {loaded.folder.name}/evals/NAME.json (docs/models.md)")
        with asker(settings, loaded) as ask:
            for run in evaluate(loaded, found, runs, ask):
                done.append(run)
                if not as_json:
                    typer.echo(f"{'ok  ' if not run.missed else 'MISS'} {run.case}  {'; '.join(run.missed)}".rstrip())
    except (DeclarationError, Fatal, Transport, ValueError) as error:
        fail(1, f"The trials cannot go on: {error}")
    passed = sum(not run.missed for run in done)
    enough = passed >= threshold * len(done)
    rows = scores(loaded, found, done)
    if as_json:
        say_json({"agent": agent, "passed": passed, "runs": len(done), "enough": enough,
                  "parts": [asdict(row) for row in rows], "trials": [asdict(run) for run in done]})  # fmt: skip
    else:
        for row in rows:
            typer.echo(f"{row.part}@{row.hash}  {row.passed} of {row.runs}")
        typer.echo(f"{passed} of {len(done)} passed; {threshold:.0%} have to.")
    raise typer.Exit(not enough)
