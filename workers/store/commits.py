"""The commit: task row, events, arrivals, approvals, outbox and child of one step in one statement.

What a step does not need is not in its statement; the pieces below are put together per shape and prepared by the
driver. No row from the task's update means another worker was quicker: nothing is written then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from secrets import token_hex
from typing import Any, LiteralString

from twelvefold.events import Finished, ModelAsked
from twelvefold.provenance import Fact
from twelvefold.record import Recorded, event_hash
from twelvefold.state import STATE_VERSION, State

from .claims import Claimed
from .database import Connection, Database
from .quick import quick
from .spend import APPEND
from .texts import RENDERED, SHARED

TASK = """
WITH t AS (
    UPDATE agent_tasks SET
        status = CASE WHEN inbox_pending > %(n)s AND %(status)s IN ('waiting', 'done') THEN 'ready' ELSE %(status)s END,
        waiting_for = %(waiting_for)s, current_step = current_step + 1, seq = %(seq)s, state = %(state)s,
        state_version = %(state_version)s, business_entity_id = %(about)s, due_at = %(due_at)s,
        wait_key = %(wait_key)s, code_floor = %(floor)s, agent_version = %(agent_version)s,
        worker_id = NULL, claimed_until = NULL, attempts = 0, nudged_at = clock_timestamp(),
        lane = CASE WHEN %(status)s = 'ready' OR inbox_pending > %(n)s THEN lane ELSE 'steps' END,
        cancel_asked = CASE WHEN NOT %(finished)s THEN cancel_asked END, inbox_pending = inbox_pending - %(n)s,
        outbox_n = outbox_n + %(letters)s,
        decisions = %(decisions)s, tokens = %(tokens)s, usd = %(usd)s, active_ms = %(active_ms)s,
        outcome = coalesce(%(outcome)s, outcome), reason = %(reason)s,
        finished_at = CASE WHEN %(finished)s THEN clock_timestamp() ELSE finished_at END
     WHERE id = %(id)s AND worker_id = %(worker)s AND fence = %(fence)s
       AND (cancel_asked IS NULL OR NOT %(finished)s OR %(status)s = 'cancelled')
    RETURNING id, tenant, status, outbox_n)"""

BEGIN = """
WITH t AS (
    UPDATE agent_tasks SET seq = %(seq)s, state = %(state)s, state_version = %(state_version)s,
           inbox_pending = inbox_pending - %(n)s
     WHERE id = %(id)s AND worker_id = %(worker)s AND fence = %(fence)s
    RETURNING id, tenant, status, outbox_n)"""

EVENT = "(%(seq{i})s::int, %(type{i})s, %(version{i})s::int, %(at{i})s::timestamptz, %(data{i})s::json, \
%(salt{i})s, %(hash{i})s, %(caused{i})s::int, %(tokens{i})s::int, %(usd{i})s::numeric, %(ms{i})s::int)"

EVENTS = """,
e AS (INSERT INTO agent_events
        (task_id, seq, type, version, at, data, salt, hash, caused_by, writer, tokens, usd, duration)
      SELECT t.id, v.seq, v.type, v.version, v.at, v.data, v.salt, v.hash, v.caused, %(writer)s, v.tokens, v.usd, v.ms
        FROM t, (VALUES {rows}) AS v (seq, type, version, at, data, salt, hash, caused, tokens, usd, ms))"""

ARRIVALS = """,
a AS (UPDATE arrivals r SET absorbed_seq = x.seq
        FROM t, unnest(%(arrival_ids)s::bigint[], %(arrival_seqs)s::int[]) AS x (id, seq) WHERE r.id = x.id)"""

LETTERS = """,
o AS (INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
      SELECT x.id, t.tenant, t.id, x.seq, x.channel, x.recipient,
             t.id || ':' || x.channel || ':' || x.recipient, t.outbox_n - %(letters)s + x.n, x.key, x.payload
        FROM t, json_to_recordset(%(letters_json)s) AS x
             (id uuid, seq int, channel text, recipient text, n int, key text, payload json)
      ON CONFLICT (tenant, key) DO NOTHING)"""

FACTS = """,
f AS (INSERT INTO facts (task_id, token, seq, known, told)
      SELECT t.id, x.token, x.seq, x.known, x.told FROM t, json_to_recordset(%(facts)s) AS x
             (token text, seq int, known bool, told bool)
      ON CONFLICT (task_id, token) DO UPDATE
         SET known = facts.known OR excluded.known, told = facts.told OR excluded.told
       WHERE (excluded.known AND NOT facts.known) OR (excluded.told AND NOT facts.told))"""

CHILD = """,
c AS (INSERT INTO agent_tasks (id, tenant, agent, agent_version, state, state_version, parent_id, code_floor,
                               inbox_pending)
      SELECT %(child_id)s, t.tenant, %(child_agent)s, '', %(child_state)s, %(state_version)s, t.id, 1, 1
        FROM t ON CONFLICT (id) DO NOTHING RETURNING id),
ca AS (INSERT INTO arrivals (tenant, source, key, kind, task_id, state, payload, proof)
      SELECT t.tenant, 'delegate', c.id::text, 'message', c.id, 'accepted', %(child_payload)s::json, 'parent'
        FROM t, c)"""

END: LiteralString = "\nSELECT status FROM t"


@dataclass(frozen=True, slots=True)
class Letter:
    """A row for the outbox: `key` makes it unique in its tenant, `payload` is complete."""

    id: str
    seq: int
    channel: str
    recipient: str
    key: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A task that this commit gives birth to."""

    id: str
    agent: str
    state: State
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one commit or Begin writes. `arrivals` are (arrival id, seq) pairs that it absorbs."""

    state: State
    events: Sequence[Recorded]
    arrivals: Sequence[tuple[int, int]] = ()
    letters: Sequence[Letter] = ()
    children: Sequence[Child] = ()
    floor: int = 1
    agent_version: str = ""
    facts: Sequence[Fact] = ()
    agent: str = ""
    caused_by: dict[int, int] = field(default_factory=dict)
    shared: Sequence[dict[str, Any]] = ()
    rendered: Sequence[dict[str, Any]] = ()
    """Texts of a request: {hash, text, source, commit} of those that are code, {hash, seq, text} of the task's own."""


def write(connection: Connection, held: Claimed, batch: Batch) -> str | None:
    """Write the commit; the task's new row status. None: nothing was written, as the claim is no longer ours, or a
    cancel is asked for and the commit would end the task otherwise.
    """
    s = batch.state
    used = s.lifetime if s.status in ("done", "failed", "cancelled") else s.lifetime.plus(s.used)
    finished = [r.event for r in batch.events if isinstance(r.event, Finished)]
    names = _names(held, batch) | {
        "status": s.status, "waiting_for": s.waiting_for, "about": s.about, "due_at": s.due_at(),
        "wait_key": s.wait_key, "floor": batch.floor, "agent_version": batch.agent_version,
        "decisions": used.decisions, "tokens": used.tokens, "usd": used.usd, "active_ms": used.active_ms,
        "outcome": json.dumps(finished[-1].outcome) if finished else None, "reason": s.reason or None,
        "finished": bool(finished), "letters": len(batch.letters),
    }  # fmt: skip
    return _run(connection, TASK, batch, names)


def write_begin(connection: Connection, held: Claimed, batch: Batch) -> str | None:
    """Write a Begin: state, absorbed events and Started; the claim stays."""
    return _run(connection, BEGIN, batch, _names(held, batch))


def _names(held: Claimed, batch: Batch) -> dict[str, Any]:
    return {
        "id": held.id, "worker": held.worker, "fence": held.fence, "writer": held.writer, "n": len(batch.arrivals),
        "seq": batch.state.seq, "state": batch.state.model_dump_json(exclude_defaults=True),
        "state_version": STATE_VERSION,
    }  # fmt: skip


def _run(connection: Connection, head: str, batch: Batch, names: dict[str, Any]) -> str | None:
    for i, recorded in enumerate(batch.events):
        names |= _event(i, recorded, batch.caused_by.get(recorded.seq))
    if batch.arrivals:
        names["arrival_ids"] = [row for row, _ in batch.arrivals]
        names["arrival_seqs"] = [seq for _, seq in batch.arrivals]
    if batch.letters:
        names["letters_json"] = json.dumps(
            [{"id": x.id, "seq": x.seq, "channel": x.channel, "recipient": x.recipient, "n": n, "key": x.key,
              "payload": x.payload} for n, x in enumerate(batch.letters, 1)]
        )  # fmt: skip
    if batch.facts:
        names["facts"] = json.dumps([fact._asdict() for fact in batch.facts])
    for child in batch.children:
        names |= {
            "child_id": child.id, "child_agent": child.agent, "child_payload": json.dumps(child.payload),
            "child_state": child.state.model_dump_json(exclude_defaults=True),
        }  # fmt: skip
    if batch.rendered:
        names |= {"shared_json": json.dumps(batch.shared), "rendered_json": json.dumps(batch.rendered)}
    spent = [r.event.spent for r in batch.events if isinstance(r.event, ModelAsked)]
    tokens, usd = sum(s.tokens_in + s.tokens_out for s in spent), sum((s.usd for s in spent), Decimal(0))
    if tokens or usd:
        names |= {"agent": batch.agent, "spent_tokens": tokens, "spent_usd": usd}
    more = {
        ARRIVALS: batch.arrivals, LETTERS: batch.letters, FACTS: batch.facts, CHILD: batch.children,
        SHARED + RENDERED: batch.rendered, APPEND: tokens or usd,
    }  # fmt: skip
    sql = _sql(head, len(batch.events), tuple(piece for piece, there in more.items() if there))
    found = quick(connection, sql, names)
    return found[0][0] if found else None


@lru_cache(maxsize=256)
def _sql(head: str, events: int, more: tuple[str, ...]) -> str:
    rows = ", ".join(EVENT.replace("{i}", str(i)) for i in range(events))
    return "".join([head, EVENTS.replace("{rows}", rows) if events else "", *more, END])


def _event(i: int, recorded: Recorded, caused_by: int | None) -> dict[str, Any]:
    event = recorded.event
    salt = token_hex(8)
    spent = getattr(event, "spent", None)
    return {
        f"seq{i}": recorded.seq, f"type{i}": type(event).__name__, f"version{i}": event.version,
        f"at{i}": recorded.at, f"data{i}": event.data, f"salt{i}": salt, f"hash{i}": event_hash(salt, event.data),
        f"caused{i}": caused_by,
        f"tokens{i}": spent.tokens_in + spent.tokens_out if spent else None,
        f"usd{i}": spent.usd if spent else None, f"ms{i}": spent.ms if spent else getattr(event, "ms", None),
    }  # fmt: skip


def was_written(connection: Connection, held: Claimed, seq: int) -> bool:
    """Whether an event with this seq was written by this claim: what a lost answer to COMMIT leaves open.

    The row lock waits for a transaction of ours that is still under way behind the lost connection.
    """
    connection.execute("SELECT FROM agent_tasks WHERE id = %s FOR UPDATE", (held.id,))
    found = connection.execute(
        "SELECT FROM agent_events WHERE task_id = %s AND seq = %s AND writer = %s", (held.id, seq, held.writer)
    )
    return found.rowcount == 1


def landed_as(db: Database, held: Claimed, seq: int) -> str | None:
    """The task's status now when this claim wrote an event with this seq, else None."""
    with db.transaction() as connection:
        if not was_written(connection, held, seq):
            return None
        row = connection.execute("SELECT status FROM agent_tasks WHERE id = %s", (held.id,)).fetchone()
    return None if row is None else row[0]
