"""Budgets that tasks share, by tenant and day: for all of a tenant (`all`), or for one agent (`agent:NAME`)."""

from __future__ import annotations

from twelvefold.events import LimitReached

from .store import spend
from .work import Runtime, Work

ALL = "all"


def over(work: Work, run: Runtime) -> LimitReached | None:
    """The shared budget that is used up for this task, told to operators once a scope and day; None: it may go on."""
    scopes = {scope: most for scope in (ALL, f"agent:{work.agent.name}") if (most := run.settings.daily.get(scope))}
    if not scopes:
        return None
    tenant = work.held.tenant
    day = spend.today(run.db, tenant, work.agent.name)
    for scope, most in scopes.items():
        used = day.tenant if scope == ALL else day.agent
        more = spend.allowed(run.db, tenant, scope)
        rows = (("usd", used.usd, most.usd, more.usd), ("tokens", used.tokens, most.tokens, more.tokens))
        for dimension, spent, limit, extra in rows:
            if limit is None or spent < limit + extra:
                continue
            if spend.notice(run.db, tenant, scope, dimension):
                run.log.error("daily_budget_reached", tenant=tenant, scope=scope, dimension=dimension)
            return LimitReached(
                dimension=dimension, used=str(spent), limit=str(limit + extra), scope=scope, until=day.end
            )
    return None
