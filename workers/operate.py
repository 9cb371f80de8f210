"""What people do to tasks from outside: decide, settle, cancel, pause, resume, retry, raise.

Each is one short transaction that locks the task row first; what the reducer has to know reaches it as an arrival.
After `pause` and `cancel` have returned, no effect of the task begins.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from pydantic import ValidationError

from twelvefold.events import CancelAsked, Resumed, Settled
from twelvefold.schema import stored_call
from twelvefold.state import State

from .decisions import Answer, Decision, Proof, Refused, Terms, Wish, decide, tell
from .ids import uuid7
from .registry import Registry
from .store import grants, inbox, spend
from .store.database import Connection, Database

__all__ = ["Decision", "Operate", "Refused"]

ENDED = ("done", "failed", "cancelled")


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
        edited: str | None = None,
        grant: Terms | None = None,
    ) -> Decision:
        """Approve or reject an asked call; the first decision wins, an equal repeat is answered alike. `edited`:
        approve it with these arguments, as canonical JSON.

        `by` must be among the people whom the question names, unless it names none or `proof` is `override`. Raises
        Refused as `decisions.decide` does.
        """
        to: Answer = "approved" if approved else "rejected"
        wish = Wish(task_id, call, to, by, proof, digest=digest, comment=comment, edited=edited, grant=grant)
        return decide(self.db, wish, self.registry)

    def revoke(self, grant_id: str, *, by: str, tenant: str | None = None) -> None:
        """End a grant: no call begins on it any more. Raises Refused 404."""
        with self.db.transaction() as connection:
            if not grants.revoke(connection, grant_id, by, tenant):
                raise Refused(404, f"There is no grant {grant_id}. See them: twelvefold grants")

    def ask_back(self, task_id: str, call: int, question: str, *, by: str, proof: Proof = "session") -> Decision:
        """Ask the agent about a call that it wants approved; the question stays open. Raises Refused."""
        return decide(self.db, Wish(task_id, call, "more_info", by, proof, comment=question), self.registry)

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

    def retry(self, task_id: str, *, by: str, key: str | None = None) -> None:
        """Let a quarantined, parked or backing-off task go on now, from the step that failed. A retry that was asked
        for already is the same retry. Raises Refused 409 for a task that needs none.
        """
        with self.db.transaction() as connection:
            status, event = _locked(connection, task_id)[2], Resumed(by=by, verb="retry")
            if _same_request(connection, task_id, event, key) or inbox.waits_in(connection, task_id, "retry"):
                return
            _not_ended(task_id, status)
            if not inbox.let_go_on(connection, task_id):
                raise Refused(409, f"Task {task_id} is {status} and needs no retry.")
            _resume(connection, task_id, event, key)

    def raise_budget(
        self,
        task_id: str,
        *,
        by: str,
        decisions: int = 0,
        tokens: int = 0,
        usd: Decimal = Decimal(0),
        active: timedelta = timedelta(0),
        deadline: datetime | None = None,
        key: str | None = None,
    ) -> None:
        """Add to the run's budget, and let it go on where that was what it waited for; `deadline` is the new absolute
        end of the run. Each raise adds, unless it repeats the `key` of another. Raises Refused 409 for an ended task, a
        deadline that has passed, and a key that was used for something else.
        """
        event = Resumed(
            by=by, verb="raise", decisions=decisions, tokens=tokens, usd=usd,
            active_ms=int(active.total_seconds() * 1000), deadline=deadline,
        )  # fmt: skip
        with self.db.transaction() as connection:
            status = _locked(connection, task_id)[2]
            if _same_request(connection, task_id, event, key):
                return
            _not_ended(task_id, status)
            if deadline is not None and not inbox.lies_ahead(connection, deadline):
                raise Refused(409, f"The deadline {deadline:%Y-%m-%d %H:%M:%S %Z} has passed. Name a later one.")
            _resume(connection, task_id, event, key)

    def allow(self, tenant: str, scope: str, *, by: str, tokens: int = 0, usd: Decimal = Decimal(0)) -> int:
        """Let a scope (`all`, `agent:NAME`) spend so much more today, and let the tasks that waited for it go on: how
        many those were.
        """
        with self.db.transaction() as connection:
            waiting = spend.allow(connection, tenant, scope, tokens=tokens, usd=usd, by=by)
        for task_id in waiting:  # a row at a time; one that has ended meanwhile needs nothing
            with suppress(Refused):
                self.raise_budget(task_id, by=by)
        return len(waiting)


def _not_ended(task_id: str, status: str) -> None:
    if status in ENDED:
        raise Refused(409, f"Task {task_id} is {status}; only a task that has not ended can go on.")


def _resume(connection: Connection, task_id: str, event: Resumed, key: str | None) -> None:
    data = event.model_dump(mode="json", exclude_defaults=True)
    tell(connection, task_id, "resume", _named(event, key), data, event.by)


def _named(event: Resumed, key: str | None) -> str:
    return f"{event.verb}:{key or uuid7()} {event.by}"


def _same_request(connection: Connection, task_id: str, event: Resumed, key: str | None) -> bool:
    """Whether this was asked for with this key before. Raises Refused 409 when the key came with something else."""
    if key is None:
        return False
    said = inbox.payload(connection, task_id, "operate", f"{task_id}:{_named(event, key)}")
    if said is not None and said != event.model_dump(mode="json", exclude_defaults=True):
        raise Refused(409, "This key came with another request before. Give each new request a key of its own.")
    return said is not None


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
