"""The approvals rows that a commit opens and moves, by compare-and-set: a miss means someone was quicker."""

from __future__ import annotations

from collections.abc import Sequence

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
MOVES = {"expired": ["pending"], "superseded": ["pending", "approved"], "stale": ["approved"]}


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
