"""Which model serves which role, and what its tokens cost.

A role has a first model and others that are asked when it does not answer. What nobody configured falls back to the
model of `decide`. A name that may mean another model tomorrow, or one without a price, is refused at load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

from twelvefold.agent import Agent
from twelvefold.errors import DeclarationError

from .prices import Price, listed
from .settings import Role, Settings

ROLES: tuple[str, ...] = get_args(Role)
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$|-\d{4}$|@[0-9a-f]{7,}$|:ft-|^ft:")
_DRIFTS = re.compile(r"[:-]latest$|^chatgpt-")


@dataclass(frozen=True)
class Roster:
    """The models of a process. Roles are `decide`, `plan`, `summarise`, `verify` and `answer`."""

    default: str
    roles: Mapping[str, tuple[str, ...]]
    prices: Mapping[str, Price]
    everything: Price | None = None
    """What every model costs that has no price of its own, where the operator said so."""

    def models(self, role: str, own: str = "") -> tuple[str, ...]:
        """The models to ask, in order; an agent's own model comes first where it decides."""
        named = self.roles.get(role) or self.roles.get("decide") or (self.default,)
        return (own, *(name for name in named[1:] if name != own)) if own and role == "decide" else named

    def price(self, model: str) -> Price:
        """What a model costs; nothing where it has no price, which only agents without a usd budget may use."""
        return self.prices.get(model) or self.everything or Price()

    def check(self, agents: Iterable[Agent], *, elsewhere: bool) -> None:
        """Raise DeclarationError for a name that drifts, and for a model without a price. `elsewhere`: the endpoint is
        not OpenAI's own, and so its names need no date.
        """
        for agent in agents:
            for name in dict.fromkeys(name for role in ROLES for name in self.models(role, agent.model)):
                if _DRIFTS.search(name) or not (elsewhere or _DATED.search(name)):
                    raise DeclarationError(
                        f"{agent.name}: the model {name!r} may be another one tomorrow. Pin it by its date, such as "
                        "gpt-5-mini-2025-08-07 (TWELVEFOLD_MODEL, TWELVEFOLD_MODELS or Agent(model=...))."
                    )
                if agent.budget.usd and name not in self.prices and self.everything is None:
                    raise DeclarationError(
                        f"{agent.name}: the model {name!r} has no price, and so the agent's budget of "
                        f"{agent.budget.usd} USD could not be held. Say what a million tokens cost: "
                        f'TWELVEFOLD_PRICES={{"{name}": {{"in": "0.25", "out": "2.00"}}}}; 0 for a model of your own.'
                    )


def roster(settings: Settings) -> Roster:
    """The roster as configured."""
    everything = None
    if settings.price_in is not None or settings.price_out is not None:
        everything = Price(tokens_in=settings.price_in or Decimal(0), tokens_out=settings.price_out or Decimal(0))
    roles = {str(role): names for role, names in settings.models.items()}
    return Roster(settings.model, roles, {**({} if everything else listed()), **settings.prices}, everything)
