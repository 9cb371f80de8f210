"""The approvals rows: opened and moved by commits, decided by people; by compare-and-set or under the task's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from twelvefold.errors import Stale
from twelvefold.events import ApprovalAsked, ApprovalMoved, Blocked, Finished, PolicyDenied, Recorded

from .claims import Claimed
from .database import Connection

OPEN = """
INSERT INTO approvals (tenant, task_id, call, asked, digest, verdict, target, risk, deadline)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
MOVE = """
UPDATE approvals SET state = %(to)s, decided_at = clock_timestamp(), comment = %(comment)s
 WHERE tenant = %(tenant)s AND task_id = %(id)s AND call = %(call)s AND state = ANY(%(source)s) AND used_at IS NULL
   AND (%(to)s <> 'expired' OR deadline <= clock_timestamp())
"""
SUPERSEDE = """
UPDATE approvals SET state = 'superseded', decided_at = clock_timestamp()
 WHERE tenant = %s AND task_id = %s AND state = 'pending'
"""
QUESTION = """
SELECT tenant, task_id::text, call, asked, digest, target, risk, state, deadline <= clock_timestamp(), decided_by,
       decided_at AT TIME ZONE 'UTC', wrong_words
  FROM approvals
 WHERE tenant = %s AND task_id = %s AND call = %s AND asked = coalesce(%s::int, asked) ORDER BY asked DESC LIMIT 1
"""
VALID_FOR = "1 hour"
DECIDE = f"""
UPDATE approvals SET state = %(to)s, decided_by = %(by)s, decided_how = %(how)s, decided_at = clock_timestamp(),
       comment = %(comment)s, valid_until = clock_timestamp() + interval '{VALID_FOR}'
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s AND state = 'pending'
RETURNING decided_at AT TIME ZONE 'UTC'
"""
WRONG_WORD = """
UPDATE approvals
   SET wrong_words = wrong_words || jsonb_build_object(%(who)s::text, coalesce((wrong_words ->> %(who)s)::int, 0) + 1)
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s
"""
CARD = """
SELECT payload -> 'card' FROM outbox WHERE tenant = %s AND key = %s
"""
NEWEST = """
SELECT coalesce((t.state ->> 'message_seq')::int, 0),
       EXISTS (SELECT FROM arrivals r WHERE r.tenant = t.tenant AND r.task_id = t.id AND r.kind = 'message'
                  AND r.state = 'accepted' AND r.absorbed_seq IS NULL)
  FROM agent_tasks t WHERE t.tenant = %s AND t.id = %s
"""
WRITTEN = """
SELECT coalesce(data ->> 'sender', ''), coalesce(data -> 'payload' ->> 'text', '') FROM agent_events
 WHERE task_id = %s AND seq > %s AND seq <= %s AND type = 'Arrived' AND data ->> 'kind' = 'message'
 ORDER BY seq DESC LIMIT 5
"""
MOVES = {"expired": ["pending"], "superseded": ["pending", "approved"], "stale": ["approved"]}


@dataclass(frozen=True, slots=True)
class Row:
    """One question. `late`: the deadline is over; `decided_at` is UTC, without saying so; `wrong_words` by person."""

    tenant: str
    task: str
    call: int
    asked: int
    digest: str
    target: str
    risk: str
    state: str
    late: bool
    decided_by: str | None
    decided_at: datetime
    wrong_words: Mapping[str, int]

    @property
    def open(self) -> bool:
        """Whether it can still be decided."""
        return self.state == "pending" and not self.late


def question(connection: Connection, tenant: str, task_id: str, call: int, asked: int | None) -> Row | None:
    """The question `asked` about a call, or the newest one; None when there is none."""
    row = connection.execute(QUESTION, (tenant, task_id, call, asked)).fetchone()
    return None if row is None else Row(*row)


def card(connection: Connection, tenant: str, key: str) -> dict[str, Any] | None:
    """The card that the letter with this key showed; None when there is no such letter."""
    row = connection.execute(CARD, (tenant, key)).fetchone()
    return None if row is None else row[0]


def newest_message(connection: Connection, row: Row) -> tuple[int, bool]:
    """The seq of the task's newest message from a person, and whether one has come that the task has not read yet."""
    found = connection.execute(NEWEST, (row.tenant, row.task)).fetchone()
    return (0, False) if found is None else (found[0], found[1])


def written_since(connection: Connection, row: Row, newest: int) -> list[tuple[str, str]]:
    """The last messages up to `newest` that came after the question was asked, oldest first: (sender, text)."""
    return connection.execute(WRITTEN, (row.task, row.asked, newest)).fetchall()[::-1]


def decided(connection: Connection, row: Row, to: str, by: str, how: str, comment: str) -> datetime:
    """Write a person's decision on a pending row, with the task row locked; when that was, UTC."""
    names = {**_named(row), "to": to, "by": by, "how": how, "comment": comment}
    found = connection.execute(DECIDE, names).fetchone()
    assert found is not None, "the row was pending, and it is moved only under the lock of its task"
    at: datetime = found[0]
    return at


def count_wrong_word(connection: Connection, row: Row, who: str) -> None:
    """Count a wrong word of one person, with the task row locked."""
    connection.execute(WRONG_WORD, {**_named(row), "who": who})


def _named(row: Row) -> dict[str, Any]:
    return {"tenant": row.tenant, "task": row.task, "call": row.call, "asked": row.asked}


def concerned(events: Sequence[Recorded]) -> bool:
    """Whether these events open or move an approval."""
    return any(isinstance(r.event, ApprovalAsked | ApprovalMoved | Blocked | PolicyDenied | Finished) for r in events)


def apply(connection: Connection, held: Claimed, events: Sequence[Recorded]) -> None:
    """Open and move the rows these events speak of. Raises Stale when a compare-and-set misses.

    The task row must be locked already. A decision came with its row moved; only what the reducer itself decides
    (expired, superseded, stale) moves a row here.
    """
    for recorded in events:
        event = recorded.event
        if isinstance(event, ApprovalAsked):
            row = (
                held.tenant, held.id, event.call, recorded.seq, event.digest, event.verdict, event.target, event.risk,
                event.deadline,
            )  # fmt: skip
            connection.execute(OPEN, row)
        elif isinstance(event, ApprovalMoved) and event.to in MOVES:
            _move(connection, held, event.call, event.to, event.reason)
        elif isinstance(event, Blocked):
            _move(connection, held, event.call, "superseded", "freeze")
        elif isinstance(event, PolicyDenied):
            _move(connection, held, event.call, "superseded", event.why)
        elif isinstance(event, Finished):
            connection.execute(SUPERSEDE, (held.tenant, held.id))


def _move(connection: Connection, held: Claimed, call: int, to: str, comment: str) -> None:
    names = {"tenant": held.tenant, "id": held.id, "call": call, "to": to, "source": MOVES[to], "comment": comment}
    # a call that was AUTO or denied has no row; one that expires has, unless somebody decided meanwhile
    if connection.execute(MOVE, names).rowcount == 0 and to == "expired":
        raise Stale
