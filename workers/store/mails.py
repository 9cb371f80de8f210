"""What mail that comes in is matched against: our letters, earlier mails, and how far each mailbox is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from .database import Connection, Database

BY_ID = """
SELECT id::text, tenant, task_id::text, seq, recipient, key, payload FROM outbox WHERE id = %s AND channel = 'email'
"""
BY_RECEIPT = """
SELECT id::text, tenant, task_id::text, seq, recipient, key, payload FROM outbox
 WHERE tenant = %s AND channel = 'email' AND receipt = ANY(%s) ORDER BY n DESC LIMIT 1
"""
THREAD = """
SELECT task_id::text FROM arrivals
 WHERE tenant = %s AND source = 'email' AND conversation = ANY(%s) AND task_id IS NOT NULL
 ORDER BY received_at DESC LIMIT 1
"""
KNOWN = "SELECT task_id::text FROM arrivals WHERE tenant = %s AND source = %s AND key = %s"
LATELY = """
SELECT (SELECT count(*) FROM arrivals WHERE tenant = %(tenant)s AND source = 'email' AND sender = %(sender)s
            AND received_at > statement_timestamp() - interval '10 minutes'),
       (SELECT count(*) FROM arrivals WHERE tenant = %(tenant)s AND source = 'email' AND conversation = %(thread)s
            AND received_at > statement_timestamp() - interval '10 minutes'),
       (SELECT count(*) FROM arrivals WHERE tenant = %(tenant)s AND source = 'email' AND conversation = %(thread)s
            AND proof = 'none' AND received_at > statement_timestamp() - interval '1 hour')
"""
UNDELIVERABLE = """
INSERT INTO undeliverable (tenant, address, letter) VALUES (%s, %s, %s) ON CONFLICT (tenant, address) DO NOTHING
"""
NOTICE = """
WITH t AS (UPDATE agent_tasks SET outbox_n = outbox_n + 1 WHERE tenant = %(tenant)s AND id = %(task)s
           RETURNING id, outbox_n)
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
SELECT %(id)s, o.tenant, o.task_id, o.seq, o.channel, o.recipient, o.conversation, t.outbox_n, %(key)s, %(payload)s
  FROM outbox o JOIN t ON t.id = o.task_id
 WHERE o.tenant = %(tenant)s AND o.key = %(answers)s
   AND NOT EXISTS (SELECT FROM outbox p WHERE p.tenant = o.tenant AND p.conversation = o.conversation
                      AND p.key LIKE %(kind)s AND p.created_at > clock_timestamp() - interval '1 day')
    ON CONFLICT (tenant, key) DO NOTHING
"""
POSITION = "SELECT uidvalidity, uid FROM mailboxes WHERE tenant = %s AND name = %s"
ADVANCE = """
INSERT INTO mailboxes (tenant, name, uidvalidity, uid) VALUES (%s, %s, %s, %s)
    ON CONFLICT (tenant, name) DO UPDATE SET uidvalidity = excluded.uidvalidity, uid = excluded.uid,
       read_at = clock_timestamp()
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """One of our letters: what it was about, and to whom it went."""

    id: str
    tenant: str
    task: str
    seq: int
    recipient: str
    key: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lately:
    """How many mails came in ten minutes from one sender and in one thread, and in an hour unproven in that thread."""

    sender: int
    thread: int
    unproven: int


def letter(db: Database, id_: str) -> Sent | None:
    """The letter that a signed address names."""
    try:
        UUID(id_)
    except ValueError:
        return None
    with db.connection() as connection:
        row = connection.execute(BY_ID, (id_,)).fetchone()
    return None if row is None else Sent(*row)


def letter_of(db: Database, tenant: str, ids: Sequence[str]) -> Sent | None:
    """The newest letter with one of these Message-IDs, which are without brackets."""
    if not ids:
        return None
    with db.connection() as connection:
        row = connection.execute(BY_RECEIPT, (tenant, [f"<{each}>" for each in ids])).fetchone()
    return None if row is None else Sent(*row)


def thread(db: Database, tenant: str, ids: Sequence[str]) -> str | None:
    """The task of an earlier mail in the conversation with one of these ids."""
    if not ids:
        return None
    with db.connection() as connection:
        row = connection.execute(THREAD, (tenant, list(ids))).fetchone()
    return None if row is None else str(row[0])


def known(db: Database, tenant: str, source: str, key: str) -> tuple[str | None] | None:
    """The task that this very mail went to before, in a tuple; None for a new one."""
    with db.connection() as connection:
        return connection.execute(KNOWN, (tenant, source, key)).fetchone()


def lately(db: Database, tenant: str, sender: str, conversation: str) -> Lately:
    """How much came lately, to tell two programs that answer each other."""
    with db.connection() as connection:
        row = connection.execute(LATELY, {"tenant": tenant, "sender": sender, "thread": conversation}).fetchone()
    assert row is not None
    return Lately(*row)


def undeliverable(connection: Connection, sent: Sent) -> None:
    """Nobody is reached at the recipient of this letter."""
    connection.execute(UNDELIVERABLE, (sent.tenant, sent.recipient.lower(), sent.id))


def notice(db: Database, sent: Sent, kind: str, key: str, payload: dict[str, Any]) -> bool:
    """Write back into the conversation of a letter, at most once a day for each kind; whether it was written."""
    named = f"{sent.task}:{kind}:{key}"
    names = {
        "id": uuid5(NAMESPACE_OID, f"{sent.tenant}:{named}"), "tenant": sent.tenant, "task": sent.task,
        "answers": sent.key, "key": named, "kind": f"{sent.task}:{kind}:%", "payload": json.dumps(payload),
    }  # fmt: skip
    with db.transaction() as connection:
        return connection.execute(NOTICE, names).rowcount == 1


def position(db: Database, tenant: str, name: str) -> tuple[int, int] | None:
    """How far a mailbox is read: its UIDVALIDITY and the last UID; None for one that never was."""
    with db.connection() as connection:
        row = connection.execute(POSITION, (tenant, name)).fetchone()
    return None if row is None else (row[0], row[1])


def advance(db: Database, tenant: str, name: str, uidvalidity: int, uid: int) -> None:
    """The mailbox is read up to this UID."""
    with db.connection() as connection:
        connection.execute(ADVANCE, (tenant, name, uidvalidity, uid))
