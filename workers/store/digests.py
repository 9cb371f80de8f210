"""Who wants no more digests of an agent."""

from __future__ import annotations

from .database import Database


def unsubscribe(db: Database, tenant: str, agent: str, recipient: str) -> None:
    """This recipient wants no more of them. May be said twice."""
    with db.connection() as connection:
        connection.execute(
            "INSERT INTO unsubscribed (tenant, agent, recipient) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (tenant, agent, recipient.lower()),
        )


def wanted(db: Database, tenant: str, agent: str, recipient: str) -> bool:
    """Whether this recipient still wants them."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT FROM unsubscribed WHERE tenant = %s AND agent = %s AND recipient = %s",
            (tenant, agent, recipient.lower()),
        )
        return found.rowcount == 0
