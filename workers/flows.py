"""Which limits a task runs under: the tenant's, its agent's, its key's, and how many tasks may begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from twelvefold.agent import Agent


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` claims at once in a scope of a tenant; with `seconds`, so many beginnings within that time."""

    scope: str
    most: int
    seconds: float | None = None

    @property
    def told(self) -> str:
        """For people."""
        what = "tasks begin" if self.seconds is not None else "steps at once"
        return f"{self.scope}: {self.most} {what}" + (f" within {self.seconds:g} s" if self.seconds is not None else "")


class Flows:
    """The limits that agents declare. `free` are those without any, `limited` the others: {name: version} as JSON."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = agents
        limited = {name for name, agent in agents.items() if any(self._of_agent(agent, "key"))}
        self.free = json.dumps({name: agent.version for name, agent in agents.items() if name not in limited})
        self.limited = json.dumps({name: agents[name].version for name in sorted(limited)})
        self.any = bool(limited)
        self.rules = json.dumps({name: _rule(agents[name]) for name in sorted(limited)})

    def under(self, tenant: int | None) -> Callable[[str, str | None, bool], list[Limit]]:
        """`of`, where each tenant has this limit or none."""
        return lambda agent, key, begins: self.of(agent, key, begins=begins, tenant=tenant)

    def of(self, agent: str, key: str | None, *, begins: bool, tenant: int | None = None) -> list[Limit]:
        """The limits of one task, in the order in which they are locked; `tenant` is that of all of its tenant."""
        found = list(self._of_agent(self._agents[agent], key)) if agent in self._agents else []
        if tenant is not None:
            found.append(Limit("tenant", tenant))
        return sorted((each for each in found if begins or each.seconds is None), key=lambda each: each.scope)

    def _of_agent(self, agent: Agent, key: str | None) -> Iterator[Limit]:
        flow, name = agent.flow, agent.name
        if flow.concurrency is not None:
            yield Limit(f"agent {name}", flow.concurrency)
        if flow.key is not None and key is not None:
            yield Limit(f"key {name} {key}", flow.per_key)
        if flow.begins is not None:
            most, time = flow.begins
            yield Limit(f"rate {name}", most, time.total_seconds())


def _rule(agent: Agent) -> dict[str, int | None]:
    """What a sweep has to know before it rings: the same limits as numbers."""
    flow = agent.flow
    return {
        "agent": flow.concurrency, "key": flow.per_key if flow.key else None,
        "rate": flow.begins[0] if flow.begins else None,
    }  # fmt: skip
