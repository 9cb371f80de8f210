"""The rows of `approvals` that are questions, as somebody who answers needs them; answered by compare-and-set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from twelvefold.verdict import OPEN, Verdict

from .database import Connection

FIND = """
SELECT a.tenant, a.task_id::text, a.call, a.asked, a.target, a.state, a.deadline <= clock_timestamp(), a.decided_by,
       a.decided_at AT TIME ZONE 'UTC', a.answer, a.verdict::text, a.escalated_at IS NOT NULL,
       CASE WHEN (t.state -> 'call' ->> 'seq')::int = a.call THEN t.state -> 'call' ->> 'args' END
  FROM approvals a JOIN agent_tasks t ON t.id = a.task_id AND t.tenant = a.tenant
 WHERE a.tenant = %(tenant)s AND a.task_id = %(task)s AND a.kind = 'question'
   AND a.call = coalesce(%(call)s::int, a.call) AND a.asked = coalesce(%(asked)s::int, a.asked)
   AND a.asked >= CASE WHEN %(call)s::int IS NULL THEN coalesce((t.state ->> 'opened')::int, 0) ELSE 0 END
 ORDER BY a.asked DESC
"""
ANSWER = """
UPDATE approvals SET state = 'answered', answer = %(text)s, decided_by = %(by)s, decided_how = %(how)s,
       decided_at = clock_timestamp()
 WHERE tenant = %(tenant)s AND task_id = %(task)s AND call = %(call)s AND asked = %(asked)s AND kind = 'question'
   AND state = ANY(%(open)s) AND deadline > clock_timestamp()
RETURNING decided_at AT TIME ZONE 'UTC'
"""
LETTER = """
WITH t AS (UPDATE agent_tasks SET outbox_n = outbox_n + 1 WHERE tenant = %(tenant)s AND id = %(task)s
           RETURNING id, outbox_n)
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
SELECT %(id)s, o.tenant, o.task_id, o.seq, o.channel, o.recipient, o.conversation, t.outbox_n, %(key)s, %(payload)s
  FROM outbox o JOIN t ON t.id = o.task_id
 WHERE o.tenant = %(tenant)s AND o.conversation = %(task)s::text || ':email:' || %(to)s
   AND (o.payload -> 'question' ->> 'asked')::int = %(asked)s
 ORDER BY o.n DESC LIMIT 1
    ON CONFLICT (tenant, key) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `late`: its deadline is over; `args` are those of the call while it is the open one."""

    tenant: str
    task: str
    call: int
    asked: int
    target: str
    state: str
    late: bool
    answered_by: str | None
    answered_at: datetime
    answer: str | None
    verdict: str
    escalated: bool
    args: str | None

    @property
    def open(self) -> bool:
        """Whether it can still be answered."""
        return self.state in OPEN and not self.late and self.args is not None

    @property
    def responders(self) -> tuple[str, ...]:
        """The addresses of those who may answer; empty where the question names nobody."""
        return Verdict.model_validate_json(self.verdict).may_decide(escalated=self.escalated)


def find(
    connection: Connection, tenant: str, task_id: str, call: int | None = None, asked: int | None = None
) -> list[Question]:
    """The questions about a call, newest first; without a call those of the task's run."""
    names = {"tenant": tenant, "task": task_id, "call": call, "asked": asked}
    return [Question(*row) for row in connection.execute(FIND, names).fetchall()]


def answered(connection: Connection, row: Question, text: str, by: str, how: str) -> datetime | None:
    """Write an answer with the task row locked; when that was, UTC. None: it was open no more."""
    names: dict[str, Any] = {
        "tenant": row.tenant, "task": row.task, "call": row.call, "asked": row.asked, "text": text, "by": by,
        "how": how, "open": list(OPEN),
    }  # fmt: skip
    found = connection.execute(ANSWER, names).fetchone()
    return None if found is None else found[0]


def write_back(connection: Connection, row: Question, *, to: str, key: str, payload: dict[str, Any]) -> None:
    """One letter to whoever was asked by mail at this address, in that conversation; none where nobody was."""
    names = {
        "id": uuid5(NAMESPACE_OID, f"{row.tenant}:{key}"), "tenant": row.tenant, "task": row.task, "to": to,
        "asked": row.asked, "key": key, "payload": json.dumps(payload),
    }  # fmt: skip
    connection.execute(LETTER, names)
