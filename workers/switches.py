"""Switches over many tasks at once: a freeze of effects, a pause of everything, a stop of what is new.

A scope is `*`, `agent:NAME` or, for a freeze, `tool:NAME`; the tenant `*` is every tenant. After `freeze` and `pause`
have returned, no effect of their scope begins. A switch is thrown twice as once: the newer end and reason hold. None
loses anything: what arrives is kept, and worked on in its order when the switch is lifted or its time is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from twelvefold.text import clean, shorten

from .decisions import Refused
from .store import switches
from .store.database import Database

Kind = Literal["freeze", "pause", "intake"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Thrown:
    """A switch that holds, and the calls that had begun before it: (task, call, tool)."""

    kind: Kind
    scope: str
    begun: tuple[tuple[str, int, str], ...]


class Switches:
    """The switches of one database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def freeze(
        self, scope: str, *, by: str, until: datetime | None = None, reason: str = "", tenant: str = "*"
    ) -> Thrown:
        """Stop Effects and Writes of a scope; the model is told until when and why. Reads and the model go on."""
        return self.throw("freeze", scope, by=by, until=until, reason=reason, tenant=tenant)

    def pause(
        self, scope: str, *, by: str, until: datetime | None = None, reason: str = "", tenant: str = "*"
    ) -> Thrown:
        """Claim nothing of a scope."""
        return self.throw("pause", scope, by=by, until=until, reason=reason, tenant=tenant)

    def stop_intake(
        self, scope: str, *, by: str, until: datetime | None = None, reason: str = "", tenant: str = "*"
    ) -> Thrown:
        """Begin no task that has not begun; what has begun goes on, and news for it is taken."""
        return self.throw("intake", scope, by=by, until=until, reason=reason, tenant=tenant)

    def throw(
        self, kind: Kind, scope: str, *, by: str, until: datetime | None = None, reason: str = "", tenant: str = "*"
    ) -> Thrown:
        """Throw a switch, or change its end and reason. Raises Refused 409 for what is no scope of this kind."""
        _check(kind, scope)
        with self.db.transaction() as connection:
            switches.lock(connection)
            switches.throw(
                connection, tenant, kind, scope, until=until, by=by, reason=shorten(clean(reason), LONGEST_REASON)
            )
            begun = switches.begun(connection, tenant, scope)
        return Thrown(kind, scope, tuple(begun))

    def lift(self, kind: Kind, scope: str, *, tenant: str = "*") -> bool:
        """End a switch of exactly this kind, scope and tenant; False when there was none."""
        _check(kind, scope)
        with self.db.transaction() as connection:
            switches.lock(connection)
            return switches.lift(connection, tenant, kind, scope)


def _check(kind: Kind, scope: str) -> None:
    what, colon, name = scope.partition(":")
    known = ("agent", "tool") if kind == "freeze" else ("agent",)
    if scope != "*" and not (what in known and colon and name):
        named = " or ".join(f"'{each}:NAME'" for each in known)
        raise Refused(409, f"{scope!r} is no scope of a {kind}. Use '*' for everything, or {named}.")
