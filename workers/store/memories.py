"""The rows of `memories`: kept in the commit of a step, found by full text, listed and erased by operators."""

from __future__ import annotations

from typing import Any

from twelvefold.memory import MOST_MEMORIES, MOST_RECALLED, Memory

from .database import Connection, Database

KEEP = """
INSERT INTO memories (tenant, subject, text, agent, task_id, seq, sender, tainted)
VALUES (%(tenant)s, %(subject)s, %(text)s, %(agent)s, %(task)s, %(seq)s, %(sender)s, %(tainted)s)
ON CONFLICT (tenant, subject, md5(text)) DO UPDATE
   SET agent = excluded.agent, task_id = excluded.task_id, seq = excluded.seq, sender = excluded.sender, tainted = false
 WHERE memories.tainted AND NOT excluded.tainted
"""
"""What is kept already stays as it was, unless now somebody vouches for it."""
GIVE_WAY = """
DELETE FROM memories WHERE tenant = %(tenant)s AND subject = %(subject)s AND id IN (
    SELECT id FROM memories WHERE tenant = %(tenant)s AND subject = %(subject)s ORDER BY id DESC OFFSET %(most)s)
"""
RECALL = """
WITH asked AS (SELECT replace(plainto_tsquery('simple', %(query)s)::text, '&', '|')::tsquery AS q)
SELECT m.text, m.at, m.agent, m.task_id::text AS task, m.seq, m.sender, m.tainted
  FROM memories m, asked
 WHERE m.tenant = %(tenant)s AND m.subject = %(subject)s
   AND (numnode(q) = 0 OR m.words @@ q OR position(lower(%(query)s) IN lower(m.text)) > 0)
 ORDER BY ts_rank(m.words, q) DESC, m.id DESC LIMIT %(most)s
"""
LISTED = """
SELECT tenant, subject, text, at, agent, task_id::text AS task, seq, sender, tainted FROM memories
 WHERE tenant = coalesce(%(tenant)s, tenant) AND subject = coalesce(%(subject)s, subject)
 ORDER BY id DESC LIMIT %(most)s
"""
ERASE = """
DELETE FROM memories WHERE tenant = %(tenant)s AND subject = %(subject)s
"""


def keep(connection: Connection, memory: Memory, *, tenant: str, subject: str) -> None:
    """Keep it, once; what is over the bound of its subject gives way, the oldest first."""
    names: dict[str, Any] = memory.model_dump(exclude={"at"}) | {"tenant": tenant, "subject": subject}
    connection.execute(KEEP, names)
    connection.execute(GIVE_WAY, {"tenant": tenant, "subject": subject, "most": MOST_MEMORIES})


def recall(db: Database, query: str, *, tenant: str, subject: str) -> list[Memory]:
    """What fits the query, best first; of an empty one the newest."""
    names = {"query": query, "tenant": tenant, "subject": subject, "most": MOST_RECALLED}
    return [Memory.model_validate(row) for row in db.rows(RECALL, names)]


def listed(db: Database, tenant: str | None = None, subject: str | None = None, *, most: int) -> list[dict[str, Any]]:
    """The newest memories, of one subject or of all."""
    return db.rows(LISTED, {"tenant": tenant, "subject": subject, "most": most})


def erase(db: Database, *, tenant: str, subject: str) -> int:
    """Forget everything about a subject; how much it was."""
    with db.connection() as connection:
        return connection.execute(ERASE, {"tenant": tenant, "subject": subject}).rowcount
