"""A fleet in one process for tests: a runtime on a fresh database, tasks opened and stepped by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import psycopg
from pydantic import SecretStr

from twelvefold.agent import Message
from twelvefold.events import Event
from twelvefold.state import State
from workers import registry
from workers.ids import uuid7
from workers.intake import Intake
from workers.lanes import Lanes
from workers.operate import Operate
from workers.pulse import Pulse
from workers.registry import Script
from workers.roster import roster
from workers.scripted import ScriptedModel
from workers.settings import Settings
from workers.step import step
from workers.store import log
from workers.store.database import Database
from workers.store.inbox import Entry
from workers.switches import Switches
from workers.telemetry import logger
from workers.work import Runtime

TABLES = """
CREATE TABLE IF NOT EXISTS notes (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task_id text NOT NULL, text text NOT NULL);
CREATE TABLE IF NOT EXISTS refunds (key text PRIMARY KEY, order_id text NOT NULL, amount numeric NOT NULL);
"""
NO_BROKER = "redis://127.0.0.1:1/0"


class Clockwork(Pulse):
    """A pulse that a test holds in its hand."""

    alive = True

    def fresh(self) -> bool:
        """As the test says."""
        return self.alive

    def steady(self, beats: int) -> bool:
        """As the test says."""
        return self.alive


def make_tables(owner_url: str) -> None:
    """The test agents' own tables, as a migration would make them."""
    with psycopg.connect(owner_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(TABLES)


class Fleet:
    """One runtime and the hands to use it. `script(task) -> call` stands in for the model of every agent."""

    def __init__(self, app_url: str, script: Script, *, broker: str = NO_BROKER, **change: Any) -> None:
        self.settings = Settings(
            database_url=SecretStr(app_url), broker_url=SecretStr(broker), agent_modules="tests.agents", **change
        )  # fmt: skip
        agents = registry.load("tests.agents")
        worker = uuid7()
        self.run = Runtime(
            worker=worker, db=Database(app_url, size=change.get("db_pool", 8)), registry=agents,
            lanes=Lanes(broker, "test"), pulse=Clockwork(), model=ScriptedModel(dict.fromkeys(agents.loaded, script)),
            scripted=True, settings=self.settings, roster=roster(self.settings), log=logger(worker=str(worker)),
        )  # fmt: skip
        self.intake = Intake(self.run.db, agents, self.run.log)
        self.operate = Operate(self.run.db, agents)
        self.switches = Switches(self.run.db)
        self._lock, self._count = Lock(), 0

    def open(self, agent: str = "notes", text: str = "hello", tenant: str = "t1") -> str:
        """Open a task with a message; its id."""
        with self._lock:
            self._count += 1
            key = f"k{self._count}-{self.run.worker}"
        entry = Entry(tenant=tenant, source="test", key=key, kind="message", proof="test")
        verdict = self.intake.open(self.run.registry[agent], entry, Message(text=text))
        assert verdict.task_id is not None
        return verdict.task_id

    def step(self, task_id: str) -> str:
        """One step."""
        return step(task_id, self.run).status

    def drain(self, task_id: str, most: int = 60) -> str:
        """Step until there is nothing to do; the last status."""
        status = "nothing"
        for _ in range(most):
            last = self.step(task_id)
            if last == "nothing":
                return status
            status = last
        raise AssertionError(f"{task_id} did not come to rest in {most} steps")

    def state(self, task_id: str) -> State:
        """The stored state."""
        return State.model_validate_json(self.one("SELECT state::text FROM agent_tasks WHERE id = %(id)s", id=task_id))

    def row(self, task_id: str) -> dict[str, Any]:
        """The task row."""
        return self.run.db.rows("SELECT * FROM agent_tasks WHERE id = %(id)s", {"id": task_id})[0]

    def events(self, task_id: str) -> list[Event]:
        """The log."""
        return [recorded.event for recorded in log.events(self.run.db, task_id)]

    def kinds(self, task_id: str) -> list[str]:
        """The types in the log, in order."""
        return [type(event).__name__ for event in self.events(task_id)]

    def one(self, sql: Any, **names: Any) -> Any:
        """The first column of the first row."""
        rows = self.run.db.rows(sql, names)
        return next(iter(rows[0].values())) if rows else None

    def close(self) -> None:
        """Close every connection."""
        self.run.db.close()
        self.run.lanes.close()


@contextmanager
def fleet(database: Any, script: Script, **change: Any) -> Iterator[Fleet]:
    """A fleet on a fresh database with the test agents' tables."""
    make_tables(database.owner)
    made = Fleet(database.app, script, **change)
    try:
        yield made
    finally:
        made.close()
