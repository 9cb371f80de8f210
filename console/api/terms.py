"""What whoever opens a thread may choose: a smaller budget, and which of the known destinations its results go to."""

from __future__ import annotations

from triggers.problem import Problem
from twelvefold.agent import Agent
from twelvefold.bindings import Destination
from twelvefold.budget import Budget
from workers.store.tokens import Token

from .bodies import Limits
from .problems import bad


def budget(agent: Agent, given: Limits | None) -> Budget | None:
    """The agent's budget made smaller; to make it larger is an operator's right. Raises Problem 400."""
    if given is None:
        return None
    wanted = {name: value for name, value in given if value is not None}
    for name, value in wanted.items():
        most = getattr(agent.budget, name)
        if most is not None and value > most:
            raise bad(
                "Budget too large", f"`budget.{name}` is at most {most} for {agent.name}, and can be made smaller."
            )
    return agent.budget.model_copy(update=wanted)


def destinations(agent: Agent, token: Token, given: str | list[str] | None) -> tuple[Destination, ...]:
    """The destinations behind these names: channels that the agent declares, or the caller's own address. Raises
    Problem 400 for any other: where results may go is the agent's declaration.
    """
    names = [given] if isinstance(given, str) else given or []
    found: list[Destination] = []
    for name in dict.fromkeys(names):
        declared = [each for each in agent.delivery if each.channel == name]
        if declared:
            found += declared
        elif "@" in name and name.casefold() == token.principal.casefold():
            found.append(Destination("email", token.principal))
        else:
            raise _no_destination(agent, token)
    return tuple(found)


def _no_destination(agent: Agent, token: Token) -> Problem:
    known = sorted({each.channel for each in agent.delivery}) + [token.principal] * ("@" in token.principal)
    return bad(
        "Unknown destination",
        f"`delivery` names where results may go, and no free address: {', '.join(known) or 'nowhere yet'} here. "
        f"Others are declared in the agent: delivery=[to.email(...)].",
        destinations=known,
    )
