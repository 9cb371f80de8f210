"""What people do to tasks from outside: decide, settle, cancel, pause, resume, retry, raise, freeze.

Each is one short transaction that locks the task row first; what the reducer has to know reaches it as an arrival.
After `freeze`, `pause` and `cancel` have returned, no effect of their scope begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from twelvefold.events import CancelAsked, Resumed, Settled
from twelvefold.schema import stored_call
from twelvefold.state import State

from .decisions import Answer, Decision, Proof, Refused, Wish, decide, tell
from .ids import uuid7
from .registry import Registry
from .store import inbox
from .store.claims import FREEZE_LOCK
from .store.database import Connection, Database

__all__ = ["Decision", "Frozen", "Operate", "Refused"]

ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A freeze that holds, and the calls that had begun before it: (task, call, tool)."""

    id: int
    begun: tuple[tuple[str, int, str], ...]


class Operate:
    """The operators' verbs on one database."""

    def __init__(self, db: Database, registry: Registry) -> None:
        self.db, self.registry = db, registry

    def decide(
        self,
        task_id: str,
        call: int,
        *,
        approved: bool,
        by: str,
        digest: str | None = None,
        comment: str = "",
        proof: Proof = "session",
    ) -> Decision:
        """Approve or reject an asked call; the first decision wins, an equal repeat is answered alike.

        `by` must be among the people whom the question names, unless it names none or `proof` is `override`. Raises
        Refused as `decisions.decide` does.
        """
        to: Answer = "approved" if approved else "rejected"
        return decide(self.db, Wish(task_id, call, to, by, proof, digest=digest, comment=comment))

    def settle(
        self, task_id: str, call: int, *, how: Literal["happened", "not", "abandoned"], by: str, result: Any = None
    ) -> str:
        """Say what became of an effect in doubt. Raises Refused: 409 not in doubt, or the result does not validate."""
        with self.db.transaction() as connection:
            tenant, agent, _ = _locked(connection, task_id)
            state = _state(connection, task_id)
            open_call = state.call
            if open_call is None or open_call.seq != call or open_call.phase != "doubt":
                raise Refused(409, f"Call {call} of task {task_id} is not in doubt.")
            if how == "happened":
                found = self.registry[agent].agent
                tool = stored_call(found.menu, found.renamed, open_call.tool, open_call.args)
                try:
                    value = tool.__spec__.result.validate_python(result)
                except ValidationError as error:
                    raise Refused(409, f"That is not what {open_call.tool} gives back: {error}") from None
                result = tool.__spec__.result.dump_python(value, mode="json")
            settled = Settled(call=call, how=how, by=by, result=result).model_dump(mode="json", exclude_defaults=True)
            key = f"settle:{call}:{open_call.attempt}:{state.seq}"
            if tell(connection, task_id, "settlement", key, settled, by) == "duplicate":
                _same(connection, tenant, f"{task_id}:{key}", settled)
        return how

    def cancel(self, task_id: str, *, by: str, reason: str = "") -> str:
        """Ask for the end of a task. The running effect finishes, no later one begins. Refused (409) when ended."""
        with self.db.transaction() as connection:
            _, _, status = _locked(connection, task_id)
            if status == "cancelled":
                return status
            if status in ENDED:
                raise Refused(409, f"Task {task_id} is {status} already.")
            if inbox.ask_cancel(connection, task_id):
                asked = CancelAsked(by=by, reason=reason).model_dump(mode="json")
                tell(connection, task_id, "cancel", f"cancel:{uuid7()}", asked, by)
        return "cancelling"

    def pause(self, task_id: str) -> None:
        """Nothing of the task begins until `resume`."""
        with self.db.transaction() as connection:
            _locked(connection, task_id)
            connection.execute(
                "UPDATE agent_tasks SET paused_at = coalesce(paused_at, clock_timestamp()) WHERE id = %s", (task_id,)
            )

    def resume(self, task_id: str) -> None:
        """End a pause of the task."""
        with self.db.transaction() as connection:
            _locked(connection, task_id)
            connection.execute("UPDATE agent_tasks SET paused_at = NULL, nudged_at = NULL WHERE id = %s", (task_id,))

    def retry(self, task_id: str, *, by: str) -> None:
        """Let a quarantined, parked or backing-off task go on now. Raises Refused 409 for any other."""
        self._resumed(task_id, Resumed(by=by, verb="retry"))

    def raise_budget(self, task_id: str, *, by: str, decisions: int = 0, tokens: int = 0) -> None:
        """Add to the run's budget and let it go on. Raises Refused 409 for an ended task."""
        self._resumed(task_id, Resumed(by=by, verb="raise", decisions=decisions, tokens=tokens))

    def _resumed(self, task_id: str, event: Resumed) -> None:
        with self.db.transaction() as connection:
            _, _, status = _locked(connection, task_id)
            if status in ENDED:
                raise Refused(409, f"Task {task_id} is {status}; only a task that has not ended can go on.")
            if event.verb == "retry":
                row = connection.execute("SELECT waiting_for FROM agent_tasks WHERE id = %s", (task_id,)).fetchone()
                if status != "quarantined" and row not in (("operator",), ("retry",)):
                    raise Refused(409, f"Task {task_id} is {status} and needs no retry.")
                connection.execute(
                    "UPDATE agent_tasks SET attempts = 0, nudged_at = NULL,"
                    " status = CASE WHEN status = 'quarantined' THEN 'ready' ELSE status END WHERE id = %s",
                    (task_id,),
                )
            data = event.model_dump(mode="json", exclude_defaults=True)
            tell(connection, task_id, "resume", f"{event.verb}:{uuid7()}", data, event.by)

    def freeze(
        self, scope: str, *, by: str, until: datetime | None = None, reason: str = "", tenant: str = "*"
    ) -> Frozen:
        """Stop Effects and Writes of a scope: `*`, `agent:NAME` or `tool:NAME`. Answers with what had begun."""
        return self._switch("freeze", scope, by=by, until=until, reason=reason, tenant=tenant)

    def pause_scope(self, scope: str, *, by: str, until: datetime | None = None, tenant: str = "*") -> Frozen:
        """Claim nothing of a scope: `*` or `agent:NAME`, until it is lifted. Raises Refused 409 for another scope."""
        if scope != "*" and not scope.startswith("agent:"):
            raise Refused(409, f"{scope!r} cannot be paused. Use '*' or 'agent:NAME', or freeze it.")
        return self._switch("pause", scope, by=by, until=until, reason="", tenant=tenant)

    def lift(self, switch_id: int) -> None:
        """End a freeze or a scope pause."""
        with self.db.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (FREEZE_LOCK,))
            connection.execute("DELETE FROM switches WHERE id = %s", (switch_id,))

    def _switch(self, kind: str, scope: str, *, by: str, until: datetime | None, reason: str, tenant: str) -> Frozen:
        if scope != "*" and scope.partition(":")[0] not in ("agent", "tool"):
            raise Refused(409, f"{scope!r} is no scope. Use '*', 'agent:NAME' or 'tool:NAME'.")
        with self.db.transaction() as connection:
            # exclusive: waits for every Begin under way, and every later one sees the row
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (FREEZE_LOCK,))
            made = connection.execute(
                "INSERT INTO switches (tenant, kind, scope, until, by, reason) VALUES (%s, %s, %s, %s, %s, %s)"
                " RETURNING id",
                (tenant, kind, scope, until, by, reason),
            ).fetchone()
            begun = connection.execute(
                "SELECT id::text, (state -> 'call' ->> 'seq')::int, state -> 'call' ->> 'tool' FROM agent_tasks"
                " WHERE status = 'ready' AND state -> 'call' ->> 'phase' = 'begun' AND (%(tenant)s IN ('*', tenant))"
                " AND %(scope)s IN ('*', 'agent:' || agent, 'tool:' || (state -> 'call' ->> 'tool')) ORDER BY id",
                {"tenant": tenant, "scope": scope},
            ).fetchall()
        assert made is not None
        return Frozen(int(made[0]), tuple((row[0], row[1], row[2]) for row in begun))


def _locked(connection: Connection, task_id: str) -> tuple[str, str, str]:
    row = connection.execute(
        "SELECT tenant, agent, status FROM agent_tasks WHERE id = %s FOR UPDATE", (task_id,)
    ).fetchone()
    if row is None:
        raise Refused(404, f"There is no task {task_id}.")
    return row[0], row[1], row[2]


def _state(connection: Connection, task_id: str) -> State:
    row = connection.execute("SELECT state::text FROM agent_tasks WHERE id = %s", (task_id,)).fetchone()
    assert row is not None
    return State.model_validate_json(row[0])


def _same(connection: Connection, tenant: str, key: str, settled: dict[str, Any]) -> None:
    row = connection.execute(
        "SELECT payload, sender FROM arrivals WHERE tenant = %s AND source = 'operate' AND key = %s", (tenant, key)
    ).fetchone()
    assert row is not None
    said, by = row
    if {**said, "by": ""} != {**settled, "by": ""}:
        raise Refused(409, f"Already settled as {said['how']} by {by}.")
