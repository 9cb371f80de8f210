"""How much of an agent goes on at once, how fast its tasks begin, and which come first: limits as data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from .errors import DeclarationError

RATE = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})([smhd])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MOST = 1000
PRIORITIES = range(-100, 101)


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Limits of an agent, in each tenant apart. What they hold back waits in line, and nothing is lost.

    `concurrency`: so many steps at once; a task that waits takes none. `key` names, from the accepted event, what has
    a limit of its own within that, such as a customer: `per_key` steps at once. `rate`: so many tasks may begin within
    a time, such as "10/1m". `priority`: the higher ones of a tenant come first, a number or a function of the event.
    """

    concurrency: int | None = None
    key: Callable[[Any], str | None] | None = None
    per_key: int = 1
    rate: str | None = None
    priority: int | Callable[[Any], int] = 0

    def __post_init__(self) -> None:
        for what, most in (("concurrency", self.concurrency), ("per_key", self.per_key)):
            if most is not None and not 1 <= most <= MOST:
                raise DeclarationError(f"Flow: {what}= is from 1 to {MOST}, not {most}.")
        if self.per_key != 1 and self.key is None:
            raise DeclarationError("Flow: per_key= needs key=, such as key=lambda event: event.customer.")
        found = None if self.rate is None else RATE.fullmatch(self.rate)
        if self.rate is not None and (found is None or int(found[1]) > MOST):
            raise DeclarationError(f"Flow: rate= is a number of at most {MOST} and a time, such as '10/1m'.")
        if isinstance(self.priority, int) and self.priority not in PRIORITIES:
            raise DeclarationError(f"Flow: priority= is from -100 to 100, not {self.priority}.")

    @cached_property
    def begins(self) -> tuple[int, timedelta] | None:
        """How many tasks may begin within which time."""
        found = None if self.rate is None else RATE.fullmatch(self.rate)
        return None if found is None else (int(found[1]), timedelta(**{UNITS[found[3]]: int(found[2])}))

    def key_of(self, event: Any) -> str | None:
        """What the event shares a limit with."""
        return None if self.key is None else self.key(event)

    def priority_of(self, event: Any) -> int:
        """How early its task comes. Raises ValueError outside of -100 to 100."""
        found = self.priority if isinstance(self.priority, int) else self.priority(event)
        if found not in PRIORITIES:
            raise ValueError(f"priority {found} is not from -100 to 100")
        return found


UNLIMITED = Flow()
"""What an agent has that declares nothing."""
