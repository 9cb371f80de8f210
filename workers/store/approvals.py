"""The approvals rows: opened and moved by commits, decided by people; by compare-and-set or under the task's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from twelvefold.directory import Directory
from twelvefold.errors import Stale
from twelvefold.events import ApprovalAsked, ApprovalMoved, Blocked, Finished, PolicyDenied
from twelvefold.record import Recorded
from twelvefold.verdict import APPROVED, OPEN, Verdict, people

from . import copies
from .claims import Claimed
from .database import Connection

ASK = """
INSERT INTO approvals (tenant, task_id, call, asked, digest, verdict, target, risk, deadline, editor, kind)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
MOVE = """
UPDATE approvals SET state = %(to)s, decided_at = clock_timestamp(), comment = %(comment)s
 WHERE tenant = %(tenant)s AND task_id = %(id)s AND call = %(call)s AND state = ANY(%(source)s) AND used_at IS NULL
   AND (%(to)s <> 'expired' OR deadline <= clock_timestamp())
RETURNING asked, valid_until IS NULL AS undecided
"""
SUPERSEDE = """
UPDATE approvals SET state = 'superseded', decided_at = clock_timestamp()
 WHERE tenant = %s AND task_id = %s AND state = ANY(%s)
RETURNING asked
"""
QUESTION = """
SELECT tenant, task_id::text, call, asked, digest, target, risk, state, deadline <= clock_timestamp(), decided_by,
       decided_at AT TIME ZONE 'UTC', wrong_words, verdict::text, editor, edited, escalated_at IS NOT NULL,
       more_info_at AT TIME ZONE 'UTC', comment
  FROM approvals
 WHERE tenant = %s AND task_id = %s AND call = %s AND asked = coalesce(%s::int, asked) AND kind = 'approval'
 ORDER BY asked DESC LIMIT 1
"""
VALID_FOR = "1 hour"
DECIDE = f"""
UPDATE approvals SET state = %(to)s, decided_by = %(by)s, decided_how = %(how)s, decided_at = clock_timestamp(),
       comment = %(comment)s, digest = %(new_digest)s, edited = %(edited)s,
       valid_until = clock_timestamp() + interval '{VALID_FOR}'
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s
   AND state = ANY(%(open)s)
RETURNING decided_at AT TIME ZONE 'UTC'
"""
WRONG_WORD = """
UPDATE approvals
   SET wrong_words = wrong_words || jsonb_build_object(%(who)s::text, coalesce((wrong_words ->> %(who)s)::int, 0) + 1)
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s
"""
VOTE = """
INSERT INTO votes (tenant, task_id, call, asked, by, how, comment)
VALUES (%(tenant)s, %(task)s, %(call)s, %(asked)s, %(by)s, %(how)s, %(comment)s)
RETURNING at AT TIME ZONE 'UTC'
"""
VOTES = """
SELECT by, how, at AT TIME ZONE 'UTC' FROM votes
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s ORDER BY at
"""
REQUESTERS = """
WITH RECURSIVE up AS (
    SELECT t.id, t.parent_id, coalesce((t.state ->> 'opened')::int, 0) AS opened FROM agent_tasks t
     WHERE t.tenant = %(tenant)s AND t.id = %(task)s
    UNION ALL
    SELECT p.id, p.parent_id, coalesce((p.state ->> 'opened')::int, 0) FROM up
      JOIN agent_tasks p ON p.id = up.parent_id)
SELECT e.data ->> 'sender' FROM up JOIN agent_events e ON e.task_id = up.id AND e.seq >= up.opened
 WHERE e.type = 'Arrived' AND e.data ->> 'kind' = 'message' AND e.data ->> 'sender' <> ''
UNION
SELECT r.sender FROM up JOIN arrivals r ON r.task_id = up.id
 WHERE r.kind = 'message' AND r.state = 'accepted' AND r.absorbed_seq IS NULL AND r.sender <> ''
"""
"""Who wrote to the run that asks, or to those that delegated to it, read by now or not."""
STAGE = """
UPDATE approvals SET state = CASE WHEN %(to)s = 'explained' THEN 'pending' ELSE %(to)s END,
       escalated_at = CASE WHEN %(to)s = 'escalated' THEN clock_timestamp() ELSE escalated_at END
 WHERE tenant = %(tenant)s AND task_id = %(id)s AND call = %(call)s AND state = ANY(%(source)s)
"""
MORE = """
UPDATE approvals SET state = 'more_info', more_info_at = clock_timestamp(), decided_by = %(by)s, comment = %(comment)s,
       deadline = deadline + make_interval(secs => %(longer)s)
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s AND state = ANY(%(open)s)
   AND more_info_at IS NULL
RETURNING more_info_at AT TIME ZONE 'UTC'
"""
RULE = """
SELECT state #>> '{call,asks}' FROM agent_tasks WHERE tenant = %(tenant)s AND id = %(task)s
"""
CALL = """
SELECT agent, state -> 'call' ->> 'tool', state -> 'call' ->> 'args' FROM agent_tasks
 WHERE tenant = %(tenant)s AND id = %(task)s AND (state -> 'call' ->> 'seq')::int = %(call)s
"""
CARD = """
SELECT coalesce(payload -> 'card', payload -> 'question') FROM outbox
 WHERE tenant = %s AND conversation = %s
   AND (coalesce(payload -> 'card', payload -> 'question') ->> 'asked')::int = %s ORDER BY n DESC LIMIT 1
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
MOVES = {"expired": [*OPEN], "superseded": [*OPEN, *APPROVED], "stale": [*APPROVED]}
OVER = {
    "expired": "This is no longer open: nobody decided in time.",
    "superseded": "This is no longer needed: nothing is left to decide.",
}
"""What the copies of a question are told that nobody decided."""
UNDELIVERABLE = "undeliverable"
"""The reason of an escalation whose letter came back."""
STAGES = {"reminded": ["pending"], "escalated": ["pending", "reminded"], "explained": ["more_info"]}


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
    verdict: str
    editor: str | None
    edited: str | None
    escalated: bool
    more_info_at: datetime | None
    comment: str | None

    @property
    def open(self) -> bool:
        """Whether it can still be decided."""
        return self.state in OPEN and not self.late

    @property
    def asks(self) -> Verdict:
        """The verdict that asked: who may decide, and how many have to."""
        return Verdict.model_validate_json(self.verdict)


@dataclass(frozen=True, slots=True)
class Vote:
    """One approval of several; `at` is UTC, without saying so."""

    by: str
    how: str
    at: datetime


def question(connection: Connection, tenant: str, task_id: str, call: int, asked: int | None) -> Row | None:
    """The question `asked` about a call, or the newest one; None when there is none."""
    row = connection.execute(QUESTION, (tenant, task_id, call, asked)).fetchone()
    return None if row is None else Row(*row)


def card(connection: Connection, tenant: str, conversation: str, asked: int) -> dict[str, Any] | None:
    """The card that the last letter of a conversation about this question showed; None when there is no such letter."""
    row = connection.execute(CARD, (tenant, conversation, asked)).fetchone()
    return None if row is None else row[0]


def newest_message(connection: Connection, row: Row) -> tuple[int, bool]:
    """The seq of the task's newest message from a person, and whether one has come that the task has not read yet."""
    found = connection.execute(NEWEST, (row.tenant, row.task)).fetchone()
    return (0, False) if found is None else (found[0], found[1])


def written_since(connection: Connection, row: Row, newest: int) -> list[tuple[str, str]]:
    """The last messages up to `newest` that came after the question was asked, oldest first: (sender, text)."""
    return connection.execute(WRITTEN, (row.task, row.asked, newest)).fetchall()[::-1]


def decided(
    connection: Connection, row: Row, to: str, by: str, how: str, comment: str, *, digest: str = "", edited: str = ""
) -> datetime:
    """Write a person's decision on an open row, with the task row locked; when that was, UTC. `edited` are the
    arguments that were put in the place of those that were shown, `digest` is that of the call with them.
    """
    names = {
        **_named(row), "to": to, "by": by, "how": how, "comment": comment, "new_digest": digest or row.digest,
        "edited": edited or None, "open": [*OPEN],
    }  # fmt: skip
    found = connection.execute(DECIDE, names).fetchone()
    assert found is not None, "the row was open, and it is moved only under the lock of its task"
    at: datetime = found[0]
    return at


def more(connection: Connection, row: Row, by: str, comment: str) -> datetime:
    """Somebody asks back, with the task row locked: the question stays open, and once so much longer; when, UTC."""
    longer = row.asks.deadline.total_seconds()
    names = {**_named(row), "by": by, "comment": comment, "longer": longer, "open": [*OPEN]}
    found = connection.execute(MORE, names).fetchone()
    assert found is not None, "the row was open, and nobody had asked back"
    at: datetime = found[0]
    return at


def rule(connection: Connection, row: Row) -> str:
    """The rule of the open question, as its agent gave it: with names where the row has addresses."""
    found = connection.execute(RULE, _named(row)).fetchone()
    return "" if found is None or found[0] is None else Verdict.model_validate_json(found[0]).rule


def open_call(connection: Connection, row: Row) -> tuple[str, str, str] | None:
    """The agent, tool and arguments of the call that a question is about; None when it is no longer in hand."""
    found = connection.execute(CALL, _named(row)).fetchone()
    return None if found is None else (found[0], found[1], found[2])


def vote(connection: Connection, row: Row, by: str, how: str, comment: str) -> Vote:
    """Write one approval, with the task row locked."""
    found = connection.execute(VOTE, {**_named(row), "by": by, "how": how, "comment": comment}).fetchone()
    assert found is not None
    return Vote(by, how, found[0])


def votes(connection: Connection, row: Row) -> list[Vote]:
    """The approvals of a question so far, in order."""
    return [Vote(*found) for found in connection.execute(VOTES, _named(row)).fetchall()]


def requesters(connection: Connection, row: Row) -> set[str]:
    """Those who asked for what is to be approved, in lower case: who wrote to the run, and who edited the call."""
    names = [found[0] for found in connection.execute(REQUESTERS, _named(row)).fetchall()] + [row.editor or ""]
    return {part for name in names if name for part in (name.lower(), *people(name))}


def count_wrong_word(connection: Connection, row: Row, who: str) -> None:
    """Count a wrong word of one person, with the task row locked."""
    connection.execute(WRONG_WORD, {**_named(row), "who": who})


def _named(row: Row) -> dict[str, Any]:
    return {"tenant": row.tenant, "task": row.task, "call": row.call, "asked": row.asked}


def concerned(events: Sequence[Recorded]) -> bool:
    """Whether these events open or move an approval."""
    return any(isinstance(r.event, ApprovalAsked | ApprovalMoved | Blocked | PolicyDenied | Finished) for r in events)


def apply(connection: Connection, held: Claimed, events: Sequence[Recorded], directory: Directory) -> None:
    """Open and move the rows these events speak of. Raises Stale when a compare-and-set misses. A row names people by
    their addresses of now: who is asked stays who may decide.

    The task row must be locked already. A decision came with its row moved; only what the reducer itself decides
    (expired, superseded, stale) moves a row here.
    """
    for recorded in events:
        event = recorded.event
        if isinstance(event, ApprovalAsked):
            row = (
                held.tenant, held.id, event.call, recorded.seq, event.digest,
                Verdict.model_validate_json(event.verdict).among(directory).model_dump_json(),
                directory.resolve(event.target), event.risk, event.deadline, event.editor or None, event.kind,
            )  # fmt: skip
            connection.execute(ASK, row)
        elif isinstance(event, ApprovalMoved) and event.to in STAGES:
            names = {"tenant": held.tenant, "id": held.id, "call": event.call, "to": event.to}
            moved = connection.execute(STAGE, {**names, "source": STAGES[event.to]}).rowcount
            if moved == 0 and event.reason != UNDELIVERABLE:  # a bounce may come after the decision
                raise Stale
        elif isinstance(event, ApprovalMoved) and event.to in MOVES:
            _move(connection, held, event.call, event.to, event.reason)
        elif isinstance(event, Blocked):
            _move(connection, held, event.call, "superseded", "freeze")
        elif isinstance(event, PolicyDenied):
            _move(connection, held, event.call, "superseded", event.why)
        elif isinstance(event, Finished):
            for (asked,) in connection.execute(SUPERSEDE, (held.tenant, held.id, [*OPEN])).fetchall():
                copies.tell(connection, held.tenant, held.id, asked, OVER["superseded"])


def _move(connection: Connection, held: Claimed, call: int, to: str, comment: str) -> None:
    names = {"tenant": held.tenant, "id": held.id, "call": call, "to": to, "source": MOVES[to], "comment": comment}
    # a call that was AUTO or denied has no row; one that expires has, unless somebody decided meanwhile
    moved = connection.execute(MOVE, names).fetchall()
    if not moved and to == "expired":
        raise Stale
    for asked, undecided in moved:
        if undecided and to in OVER:  # who decided, and what, was told when they did
            copies.tell(connection, held.tenant, held.id, asked, OVER[to])
