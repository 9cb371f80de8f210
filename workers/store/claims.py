"""Claim a task, look whether its call may begin, let it go: the statements that guard a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from twelvefold.state import STATE_VERSION, State

from .database import Connection, Database
from .quick import quick

FREEZE_LOCK = 12_0002
"""Advisory lock: Begin takes it shared, whoever throws a switch exclusively."""

PAUSED = """EXISTS (SELECT FROM switches s WHERE s.tenant IN ('*', t.tenant)
    AND (s.kind = 'pause' OR (s.kind = 'intake' AND t.seq = 0 AND t.parent_id IS NULL))
    AND s.scope IN ('*', 'agent:' || t.agent) AND (s.until IS NULL OR s.until > clock_timestamp()))"""
"""A pause of its scope holds the task, or a stop of intake a task that has not begun; children are no intake."""

CLAIM = f"""
UPDATE agent_tasks t
   SET worker_id = %(worker)s, fence = t.fence + 1, attempts = t.attempts + 1,
       claimed_until = clock_timestamp() + make_interval(secs => %(lease)s)
  FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick
 WHERE t.id = %(id)s AND t.status = 'ready' AND t.worker_id IS NULL AND t.state_version <= {STATE_VERSION}
   AND t.code_floor <= (%(known)s::jsonb ->> t.agent)::int
   AND (t.cancel_asked IS NOT NULL OR (t.paused_at IS NULL AND NOT {PAUSED}))
RETURNING t.tenant, t.agent, t.state::text, t.fence, t.attempts, t.inbox_pending, t.current_step,
          to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
"""

PERMIT = f"""
SELECT t.worker_id IS NOT DISTINCT FROM %(worker)s AND t.fence = %(fence)s, t.cancel_asked IS NOT NULL,
       t.paused_at IS NOT NULL OR {PAUSED}, f.scope, f.until, f.reason
  FROM agent_tasks t
  LEFT JOIN LATERAL (
       SELECT s.scope, s.until, s.reason FROM switches s
        WHERE s.kind = 'freeze' AND s.tenant IN ('*', t.tenant)
          AND s.scope IN ('*', 'agent:' || t.agent, 'tool:' || %(tool)s)
          AND (s.until IS NULL OR s.until > clock_timestamp())
        ORDER BY s.id LIMIT 1) f ON true
 WHERE t.id = %(id)s
   FOR UPDATE OF t
"""

USE_APPROVAL = """
UPDATE approvals SET used_at = clock_timestamp()
 WHERE tenant = %(tenant)s AND task_id = %(id)s AND call = %(call)s AND digest = %(digest)s
   AND state IN ('approved', 'approved_with_edits') AND used_at IS NULL AND valid_until > clock_timestamp()
"""

USE_GRANT = """
UPDATE grants SET used = used + 1, used_at = clock_timestamp()
 WHERE tenant = %(tenant)s AND id = %(grant)s AND (task_id IS NULL OR task_id = %(id)s) AND tool = %(tool)s
   AND rule = %(rule)s AND revoked_at IS NULL AND until > clock_timestamp()
"""

RELEASE = """
UPDATE agent_tasks SET worker_id = NULL, claimed_until = NULL,
       nudged_at = CASE WHEN %(soon)s THEN NULL ELSE clock_timestamp() END,
       attempts = CASE WHEN %(died)s THEN attempts ELSE greatest(attempts - 1, 0) END
 WHERE id = %(id)s AND worker_id = %(worker)s AND fence = %(fence)s
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task in one worker's hand. `clock` is the database's time of the claim, `since` this process's monotonic."""

    id: str
    worker: UUID
    tenant: str
    agent: str
    state: State
    fence: int
    attempts: int
    pending: int
    step: int
    clock: datetime
    since: float = field(default_factory=monotonic)

    @property
    def writer(self) -> str:
        """Who writes, as it stands in every event: tells after a lost answer whether a commit was ours."""
        return f"{self.worker}/{self.fence}"


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a call may not begin now."""

    why: str
    scope: str = ""
    until: datetime | None = None
    reason: str = ""


def claim(db: Database, task_id: str, worker: UUID, known: str, lease: float) -> Claimed | None:
    """Claim a ready task; None when it is not ready, held, paused, or not for this code. `lease` is in seconds."""
    with db.connection() as connection:
        found = quick(connection, CLAIM, {"id": task_id, "worker": worker, "known": known, "lease": lease})
    return claimed(task_id, worker, found[0]) if found else None


def claimed(task_id: str, worker: UUID, row: Sequence[str]) -> Claimed:
    """What `CLAIM` returned."""
    tenant, agent, state, fence, attempts, pending, step, clock = row
    return Claimed(
        task_id, worker, tenant, agent, State.model_validate_json(state), int(fence), int(attempts), int(pending),
        int(step), datetime.fromisoformat(clock),
    )  # fmt: skip


def permit(
    connection: Connection,
    held: Claimed,
    *,
    tool: str,
    call: int,
    digest: str,
    approval: bool,
    grant: str = "",
    rule: str = "",
) -> Miss | None:
    """Whether the call may begin, with the task row locked: None, or why not. Uses the approval up where one is needed;
    where a `grant` took its place, that one is counted, if it still holds for a verdict of this `rule`.

    The freeze lock is a statement of its own: together with the next one it would read `switches` with a snapshot
    from before the lock.
    """
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (FREEZE_LOCK,))
    names: dict[str, Any] = {"id": held.id, "worker": held.worker, "fence": held.fence, "tool": tool}
    row = connection.execute(PERMIT, names).fetchone()
    if row is None or not row[0]:
        return Miss("stale")
    _, cancelled, paused, scope, until, reason = row
    if cancelled:
        return Miss("cancel")
    if paused:
        return Miss("pause")
    if scope is not None:
        return Miss("freeze", scope, until, reason)
    if approval:
        names |= {"tenant": held.tenant, "call": call, "digest": digest, "grant": grant, "rule": rule}
        used = connection.execute(USE_GRANT if grant else USE_APPROVAL, names)
        if used.rowcount != 1:
            return Miss("approval")
    return None


def not_rung(db: Database, task_id: str) -> None:
    """Nobody was told of this ready task: the next sweep shall ring it."""
    with db.connection() as connection:
        connection.execute(
            "UPDATE agent_tasks SET nudged_at = NULL WHERE id = %s AND status = 'ready' AND worker_id IS NULL",
            (task_id,),
        )


def ours(connection: Connection, held: Claimed) -> bool:
    """Whether the claim still is ours, with the task row locked."""
    found = connection.execute(
        "SELECT FROM agent_tasks WHERE id = %s AND worker_id = %s AND fence = %s FOR UPDATE",
        (held.id, held.worker, held.fence),
    )
    return found.rowcount == 1


def release(db: Database, held: Claimed, *, soon: bool, died: bool = False) -> None:
    """Give the task back untouched, when it is still ours. `soon`: it is rung at the next sweep, else after the
    re-nudge time; `died`: this counts as a death of the step.
    """
    names = {"id": held.id, "worker": held.worker, "fence": held.fence, "soon": soon, "died": died}
    with db.connection() as connection:
        connection.execute(RELEASE, names)
