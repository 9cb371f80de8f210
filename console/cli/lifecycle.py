"""The verbs that stop a task or a whole scope and let it go on. Each may be given twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from workers.operate import Operate

from .app import HOME, By, Home, Json, TaskId, cli, fail, me, operating, tell
from .switches import EVERYBODY, For, Reason, Tenant, Until, end_of, lifted, scope_of, thrown

Target = Annotated[str, typer.Argument(help="The id of a task, or a scope: all, or agent:NAME.")]
Key = Annotated[str | None, typer.Option(help="The same key again is the same request, and adds nothing.")]


@cli.command()
def cancel(
    task: TaskId, reason: Reason = "", by: By = "", as_json: Json = False, home: Home = HOME
) -> None:  # fmt: skip
    """Ask for the end of a task and its children: the running effect finishes, no later one begins."""
    _do(home, task, as_json, "", lambda operate: operate.cancel(str(task), by=by or me(), reason=reason))


@cli.command()
def pause(
    target: Target, until: Until = None, lasts: For = None, reason: Reason = "", tenant: Tenant = EVERYBODY,
    by: By = "", as_json: Json = False, home: Home = HOME,
) -> None:  # fmt: skip
    """Let nothing of a task or of a scope begin. What arrives meanwhile is kept, and worked on in its order."""
    task = _task(target)
    if task is None:
        return thrown(
            home, "pause", scope_of(target), until=end_of(until, lasts), reason=reason, tenant=tenant, by=by,
            as_json=as_json,
        )  # fmt: skip
    if until or lasts or reason or tenant != EVERYBODY:
        fail(2, "--until, --for, --reason and --tenant are for a scope; one task is paused until `resume`.")
    _do(home, task, as_json, "paused", lambda operate: operate.pause(str(task)))


@cli.command()
def resume(target: Target, tenant: Tenant = EVERYBODY, as_json: Json = False, home: Home = HOME) -> None:
    """End the pause of a task or of a scope."""
    task = _task(target)
    if task is None:
        return lifted(home, "pause", scope_of(target), tenant=tenant, as_json=as_json)
    if tenant != EVERYBODY:
        fail(2, "--tenant is for a scope: a task is one tenant's already.")
    _do(home, task, as_json, "resumed", lambda operate: operate.resume(str(task)))


@cli.command()
def retry(task: TaskId, key: Key = None, by: By = "", as_json: Json = False, home: Home = HOME) -> None:
    """Let a quarantined, parked or backing-off task go on now, from the step that failed."""
    _do(home, task, as_json, "retrying", lambda operate: operate.retry(str(task), by=by or me(), key=key))


@cli.command(name="raise")
def raise_(
    target: Target,
    decisions: Annotated[int, typer.Option(help="More decisions, such as +10.", min=0)] = 0,
    tokens: Annotated[int, typer.Option(help="More tokens.", min=0)] = 0,
    usd: Annotated[str, typer.Option(help="More money, such as 0.50.")] = "0",
    active: Annotated[float, typer.Option(help="More seconds of work.", min=0)] = 0,
    deadline: Annotated[str | None, typer.Option(help="The absolute end of the run, with a time zone.")] = None,
    key: Key = None,
    tenant: Tenant = "",
    by: By = "",
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Add to the budget of a run, or to a scope's of today, and let go on what waited for it. Each raise adds."""
    money, end = _money(usd), end_of(deadline, None)
    task = _task(target)
    if task is None:
        if decisions or active or end or key or not (tokens or money) or not tenant:
            fail(2, "A scope is raised by --usd and --tokens, for a --tenant: twelvefold raise all --tenant t1 --usd 5")
        with operating(home) as operate:
            scope = "all" if scope_of(target) == "*" else target
            going = operate.allow(tenant, scope, by=by or me(), tokens=tokens, usd=money)
        return tell("raised", as_json, scope=scope, tenant=tenant, going_on=going)
    if not (decisions or tokens or money or active or end):
        fail(2, "Say what to add, such as: twelvefold raise TASK --decisions +10")
    _do(home, task, as_json, "raised", lambda operate: operate.raise_budget(
        str(task), by=by or me(), decisions=decisions, tokens=tokens, usd=money, active=timedelta(seconds=active),
        deadline=end, key=key,
    ))  # fmt: skip


def _do(home: Path, task: UUID, as_json: bool, became: str, act: Callable[[Operate], object]) -> None:
    """Do it to one task, and say what became of it, unless the verb itself knows better."""
    with operating(home) as operate:
        said = act(operate) or became
    tell(str(said), as_json, id=str(task))


def _task(target: str) -> UUID | None:
    """The id of a task; None for what is meant as a scope."""
    try:
        return UUID(target)
    except ValueError:
        return None


def _money(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        fail(2, f"--usd takes an amount such as 0.50, not {text!r}.")
    return amount
