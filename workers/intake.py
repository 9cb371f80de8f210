"""Intake: whatever reached us becomes one row of `arrivals`, and a task or news for one, in one transaction.

Nothing here talks to the broker: a sender is answered after the commit and with the broker down too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psycopg import Error as DatabaseError
from sqlalchemy.exc import SQLAlchemyError

from triggers.envelope import Arrived, Outcome, Verdict
from twelvefold.bindings import Destination, Ignore, Wake
from twelvefold.budget import Budget
from twelvefold.canonical import plain
from twelvefold.state import STATE_VERSION, State
from twelvefold.text import inspect_json

from .ids import uuid7
from .registry import Loaded, Registry
from .store import entities, inbox, waits
from .store.database import Connection, Database
from .store.inbox import Entry
from .telemetry import Log, kind_of

NEW_TASK = """
INSERT INTO agent_tasks (id, tenant, agent, agent_version, code_floor, state, state_version, business_entity_id,
                         inbox_pending, lane, flow_key, priority)
VALUES (%(id)s, %(tenant)s, %(agent)s, %(version)s, %(floor)s, %(state)s, %(state_version)s, %(about)s, 1, %(lane)s,
        %(key)s, %(priority)s)
"""


class Intake:
    """The way in for everything from outside. When the database cannot be reached it raises, and nothing is stored."""

    def __init__(self, db: Database, registry: Registry, log: Log) -> None:
        self.db, self.registry, self.log = db, registry, log

    def accept(self, arrived: Arrived, again: int | None = None) -> Verdict:
        """Open a task of the agent that listens to this source and type, or store why nobody takes it. `again` is the
        id of an arrival that opened nothing and is read anew.
        """
        entry = Entry(
            tenant=arrived.tenant, source=arrived.source, key=arrived.key, kind="message", type=arrived.type,
            raw=arrived.raw, headers=arrived.headers, sender=arrived.sender, conversation=arrived.conversation,
            proof=arrived.proof, state="ignored", reason="no_binding", cleaned=arrived.cleaned, again=again,
        )  # fmt: skip
        if arrived.ignore:
            return self._store_only(replace(entry, reason=arrived.ignore))
        bound = self.registry.bound(arrived.source, arrived.type)
        if bound is None:
            return self._store_only(entry)
        loaded, binding = bound
        return self.read(entry, loaded, binding.read, arrived.payload)

    def read(self, entry: Entry, loaded: Loaded, reader: Callable[[Any], Any] | None, payload: Any) -> Verdict:
        """What the agent's reader makes of a payload opens a task, wakes who waits, or is kept with a reason. A reader
        that raises loses nothing: it is stored as failed, for operators to have it read anew.
        """
        try:
            accepted = payload if reader is None else reader(payload)
            if isinstance(accepted, Ignore):
                return self._store_only(replace(entry, reason=accepted.reason))
            if isinstance(accepted, Wake):
                return self._woken(entry, accepted)
            return self.open(loaded, entry, accepted)
        except (DatabaseError, SQLAlchemyError):
            raise
        except Exception as error:
            self.log.error("mapping_failed", source=entry.source, type=entry.type, key=entry.key, error=kind_of(error))
            return self._store_only(replace(entry, state="failed", reason="mapping", payload=plain(payload)))

    def ignore(self, entry: Entry, reason: str) -> Verdict:
        """Store that something reached us and nobody takes it, with the reason."""
        return self._store_only(replace(entry, state="ignored", reason=reason))

    def open(
        self,
        loaded: Loaded,
        entry: Entry,
        accepted: Any,
        *,
        about: str | None = None,
        budget: Budget | None = None,
        delivery: tuple[Destination, ...] = (),
    ) -> Verdict:
        """Open a task with what the agent accepts. Raises ValidationError when it does not fit.

        `about`, `budget` and `delivery` are the opener's choice in the place of what the agent declares. Where the
        agent has one task for each entity and one is open, this is news for it: `accepted`, for the reason `joined`.
        """
        agent = loaded.agent
        value = agent.accepted.validate_python(accepted)
        cleaned = inspect_json(plain(agent.accepted.dump_python(value, mode="json")))
        if about is None and agent.about is not None:
            about = agent.about(value)
        task_id = str(uuid7())
        state = State(id=task_id, tenant=entry.tenant, about=about, budget=budget, delivery=delivery)
        row = replace(
            entry, task_id=task_id, state="accepted", reason=None, payload=cleaned.value,
            cleaned=entry.cleaned + cleaned.changed,
        )  # fmt: skip
        with self.db.transaction() as connection:
            if agent.one_open_per_entity and about:
                under_way = entities.only_one(connection, entry.tenant, agent.name, about)
                if under_way is not None:
                    return _joined(connection, replace(row, task_id=under_way))
            if inbox.insert(connection, row) is None:
                return _duplicate(connection, row)
            connection.execute(NEW_TASK, {
                "id": task_id, "tenant": entry.tenant, "agent": agent.name, "version": loaded.version,
                "floor": agent.version, "state": state.model_dump_json(exclude_defaults=True),
                "state_version": STATE_VERSION, "about": about, "lane": "steps",
                "key": agent.flow.key_of(value), "priority": agent.flow.priority_of(value),
            })  # fmt: skip
        return Verdict("accepted", task_id=task_id)

    def message(
        self, task_id: str, *, source: str, key: str, text: str, sender: str, proof: str | None = None, cleaned: int = 0
    ) -> Verdict:
        """News from a person for a task. A done task begins a new run; a failed or cancelled one takes no message.

        `cleaned` code points of the text were changed before.
        """
        payload = inspect_json({"text": text, "subject": "", "sender": sender})
        entry = Entry(
            tenant="", source=source, key=key, kind="message", task_id=task_id, payload=payload.value,
            cleaned=cleaned + payload.changed, sender=sender, proof=proof,
        )  # fmt: skip
        return self.news(entry)

    def news(self, entry: Entry) -> Verdict:
        """The message `entry` for its task, as `message` says."""
        assert entry.task_id is not None
        with self.db.transaction() as connection:
            other = self._other_open(connection, entry.task_id)
            if other is not None:
                entry = replace(entry, tenant=other.tenant, state="ignored", reason="another_open")
                return replace(_stored(connection, entry, "ignored"), task_id=other.id)
            return put(connection, entry, person=True)

    def _other_open(self, connection: Connection, task_id: str) -> entities.Open | None:
        """The open task about the same entity that stands in the way of a new run of this one, which is done."""
        found = entities.ended(connection, task_id)
        if found is None or found.agent not in self.registry.loaded:
            return None
        if not self.registry[found.agent].agent.one_open_per_entity:
            return None
        other = entities.only_one(connection, found.tenant, found.agent, found.about)
        return None if other is None or other == task_id else replace(found, id=other)

    def event(
        self,
        tenant: str,
        wait_key: str,
        *,
        source: str,
        key: str,
        payload: Any,
        sender: str | None = None,
        proof: str | None = None,
        cleaned: int = 0,
    ) -> Verdict:
        """An outside event for whoever waits for its key; without a waiter it stays unclaimed for 24 hours."""
        value = inspect_json(plain(payload))
        return self._happened(Entry(
            tenant=tenant, source=source, key=key, kind="event", payload=value.value, cleaned=cleaned + value.changed,
            wait_key=wait_key, sender=sender, proof=proof,
        ))  # fmt: skip

    def _woken(self, entry: Entry, wake: Wake) -> Verdict:
        """A delivery that its reader calls an event: nothing is opened, whoever waits for its key is woken."""
        value = inspect_json({"key": wake.key, "data": plain(wake.data)})
        return self._happened(replace(
            entry, kind="event", state="accepted", reason=None, wait_key=str(value.value["key"]),
            payload=value.value["data"], cleaned=entry.cleaned + value.changed,
        ))  # fmt: skip

    def _happened(self, entry: Entry) -> Verdict:
        assert entry.wait_key is not None
        with self.db.transaction() as connection:
            waits.lock(connection, entry.tenant, entry.wait_key)
            waiting = waits.waiters(connection, entry.tenant, entry.wait_key)
            if len(waiting) == 1:
                return put(connection, replace(entry, task_id=waiting[0]), person=False)
            if not waiting:
                return _stored(connection, replace(entry, state="unclaimed", reason="no_waiter"), "accepted")
            if inbox.insert(connection, replace(entry, state="ignored", reason="shared")) is None:
                return _duplicate(connection, entry)
            for task_id in waiting:
                waits.share(connection, entry, task_id)
        return Verdict("accepted", f"shared by {len(waiting)}")

    def _store_only(self, entry: Entry) -> Verdict:
        with self.db.transaction() as connection:
            return _stored(connection, entry, "failed" if entry.state == "failed" else "ignored")


def put(connection: Connection, entry: Entry, *, person: bool) -> Verdict:
    """Give an arrival to its task: lock, insert, count. What an ended task does not take is stored with the reason."""
    assert entry.task_id is not None
    task_id = entry.task_id
    locked = inbox.lock(connection, task_id)
    if locked is None:
        return Verdict("failed", "unknown_task")
    tenant, _, status = locked
    entry = replace(entry, tenant=tenant)
    ended = status in ("failed", "cancelled") or (status == "done" and entry.kind != "message")
    if ended:
        reason = "finished" if status == "done" else status
        return _stored(connection, replace(entry, state="ignored", reason=reason), "ignored")
    if inbox.insert(connection, entry) is None:
        return _duplicate(connection, entry)
    inbox.count(connection, task_id, person=person)
    return Verdict("accepted", task_id=entry.task_id)


def _joined(connection: Connection, entry: Entry) -> Verdict:
    verdict = put(connection, entry, person=False)
    return replace(verdict, reason="joined") if verdict.outcome == "accepted" else verdict


def _stored(connection: Connection, entry: Entry, outcome: Outcome) -> Verdict:
    if inbox.insert(connection, entry) is None:
        return _duplicate(connection, entry)
    return Verdict(outcome, entry.reason or "", entry.task_id)


def _duplicate(connection: Connection, entry: Entry) -> Verdict:
    row = connection.execute(
        "SELECT task_id::text FROM arrivals WHERE tenant = %s AND source = %s AND key = %s",
        (entry.tenant, entry.source, entry.key),
    ).fetchone()
    return Verdict("duplicate", task_id=row[0] if row else None)
