"""Tokens of the control API. Only the hash of a secret is stored, and only the hash is looked up.

A secret has 256 random bits, so a salt or a slow hash would add nothing, and how long a look-up takes tells nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Literal, get_args

from .database import Database

Role = Literal["viewer", "reader", "requester", "approver", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
PREFIX = "tf_"

FIND = """
SELECT id, tenant, principal, roles, agents FROM tokens
 WHERE hash = %s AND revoked_at IS NULL AND expires_at > clock_timestamp()
"""
ADD = """
INSERT INTO tokens (hash, tenant, principal, roles, agents, expires_at)
VALUES (%(hash)s, %(tenant)s, %(principal)s, %(roles)s, %(agents)s, clock_timestamp() + %(lasts)s) RETURNING id
"""
LIST = """
SELECT id, tenant, principal, roles, agents, created_at, expires_at, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= clock_timestamp() THEN 'expired'
            ELSE 'valid' END AS state
  FROM tokens WHERE tenant = %(tenant)s ORDER BY id
"""
REVOKE = "UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE tenant = %s AND id = %s"


@dataclass(frozen=True, slots=True)
class Token:
    """A token that is valid now: whose it is and what it may do. `agents` is None for every agent of the tenant."""

    id: int
    tenant: str
    principal: str
    roles: frozenset[str]
    agents: frozenset[str] | None

    def has(self, *roles: Role) -> bool:
        """Whether it has one of these roles; an admin has every one."""
        return not self.roles.isdisjoint({*roles, "admin"})

    def may_use(self, agent: str) -> bool:
        """Whether the agent is one of its own."""
        return self.agents is None or agent in self.agents


def find(db: Database, secret: str) -> Token | None:
    """The valid token with this secret; None when there is none, or it is expired or revoked."""
    with db.connection() as connection:
        row = connection.execute(FIND, (_hash(secret),)).fetchone()
    if row is None:
        return None
    return Token(row[0], row[1], row[2], frozenset(row[3]), None if row[4] is None else frozenset(row[4]))


def add(
    db: Database,
    *,
    tenant: str,
    principal: str,
    roles: Collection[Role],
    agents: Collection[str] | None = None,
    lasts: timedelta = timedelta(days=90),
) -> tuple[int, str]:
    """Make a token: its id, and the secret, which is told this once and stored nowhere."""
    secret = PREFIX + token_urlsafe(32)
    names = {
        "hash": _hash(secret), "tenant": tenant, "principal": principal, "roles": sorted(roles),
        "agents": None if agents is None else sorted(agents), "lasts": lasts,
    }  # fmt: skip
    with db.connection() as connection:
        row = connection.execute(ADD, names).fetchone()
    assert row is not None
    return int(row[0]), secret


def listed(db: Database, tenant: str) -> list[dict[str, Any]]:
    """Every token of a tenant with its state: valid, expired or revoked."""
    return db.rows(LIST, {"tenant": tenant})


def revoke(db: Database, tenant: str, token_id: int) -> bool:
    """End a token now; True again for one that was ended before, False when the tenant has none of this id."""
    with db.connection() as connection:
        return connection.execute(REVOKE, (tenant, token_id)).rowcount == 1


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
