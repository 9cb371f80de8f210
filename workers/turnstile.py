"""Every model call of every process goes through here first: shared limits, and a door that closes in an outage.

A call that may begin within a second waits that long in its slot; for a later time the task waits, and the slot is
free. Without limits, and while this process sees the endpoint answer, the database is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Event

from twelvefold.canonical import sha256
from twelvefold.errors import Fatal, Transport

from .allowance import Limits
from .store import limits
from .store.database import Database

SHORT_S = 1.0
"""So long a call waits in its slot."""
ANSWER_TOKENS = 300
"""What a reply is taken to need until it says so itself."""
PATIENCE = 10
"""So many failures in a row, of the whole fleet, close the door."""
CLOSED_S = 60.0
"""The door is closed for at most so long; then one call looks."""


def account_of(api_key: str, base_url: str | None) -> str:
    """A name for the account that gives away nothing of the key."""
    return sha256("account", base_url or "", api_key)[:24]


class Turnstile:
    """One a process. `enter` before a call; then `passed` with what it used, or `failed`."""

    def __init__(
        self, db: Database, account: str, given: Limits, dice: Random, rest: Callable[[float], object] | None = None
    ) -> None:
        self._db, self._account, self._dice = db, account, dice
        self._holds, self._rates = zip(*given.buckets(), strict=True)
        self._limited = given != Limits()
        self._trouble = False
        self._rest = rest or Event().wait

    def enter(self, tokens: int) -> float:
        """0 when the call may begin now; else so many seconds until it may be tried again."""
        if not self._limited and not self._trouble:
            return 0.0
        needs = (1.0, 1.0, float(tokens + ANSWER_TOKENS), float(tokens + ANSWER_TOKENS))
        wait = limits.take(self._db, self._account, needs, self._holds, self._rates, SHORT_S)
        if wait > SHORT_S:
            return wait + self._dice.uniform(0, wait)  # whoever waits must not come back all at one moment
        if wait:
            self._rest(wait)
        return 0.0

    def passed(self, tokens: int, used: int) -> None:
        """The call was answered: it was taken for so many tokens and used so many."""
        if self._trouble:
            limits.works(self._db, self._account)
            self._trouble = False
        if self._limited and used:
            limits.correct(self._db, self._account, used - tokens - ANSWER_TOKENS)

    def failed(self, error: Transport | Fatal) -> None:
        """The endpoint failed, in a way that the next call may meet too."""
        if isinstance(error, Fatal):
            if error.code in ("quota", "auth"):  # nobody's call will do better: look once a minute whether it is mended
                self._trouble = True
                limits.failed(self._db, self._account, 1, CLOSED_S)
            return
        self._trouble = True
        wait = error.retry_after if error.retry_after is not None else self._dice.uniform(0.5, 1) * CLOSED_S / 4
        limits.failed(self._db, self._account, PATIENCE, min(wait, CLOSED_S))
