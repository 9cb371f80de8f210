"""Hands for tests of the step: change an agent, count the model's calls, run things at one moment, wait for a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier, Thread
from time import monotonic, sleep
from typing import Any

import psycopg

from tests.harness import Fleet
from twelvefold import Done, Task, Text
from twelvefold.ports import Model, ModelReply, ModelRequest
from twelvefold.tool import Tool
from workers.intake import Intake
from workers.operate import Operate
from workers.registry import Registry
from workers.store import sweeps

Script = Callable[[Task], Tool[Any]]


class Counted:
    """A model that counts how often it is asked and keeps what it saw; `reply` stands in for the answer."""

    def __init__(self, inner: Model, reply: Callable[[ModelRequest], ModelReply] | None = None) -> None:
        self.asked = 0
        self.prompts: list[str] = []
        self._inner, self._reply = inner, reply

    def ask(self, request: ModelRequest) -> ModelReply:
        """Ask on."""
        self.asked += 1
        self.prompts.append(request.user)
        return self._inner.ask(request) if self._reply is None else self._reply(request)


def counted(f: Fleet, reply: Callable[[ModelRequest], ModelReply] | None = None) -> Counted:
    """Count the fleet's model calls from here on, or answer them."""
    model = Counted(f.run.model, reply)
    f.run = replace(f.run, model=model)
    return model


def change(f: Fleet, name: str, **changed: Any) -> None:
    """Change an agent of the fleet, as a deploy would."""
    entries = [
        replace(entry, agent=replace(entry.agent, **changed)) if entry.agent.name == name else entry
        for entry in f.run.registry.loaded.values()
    ]
    f.run = replace(f.run, registry=Registry(entries))
    f.intake, f.operate = Intake(f.run.db, f.run.registry, f.run.log), Operate(f.run.db, f.run.registry)


def once(call: Tool[Any]) -> Script:
    """A model that makes one call, then is done with whatever it came to."""

    def script(task: Task) -> Tool[Any]:
        known = task.state.tally(call.__spec__.name)
        over = known.count or known.failed or known.denied
        return Done(outcome=Text(text="over")) if over else call

    return script


def together(*acts: Callable[[], Any], within: float = 60) -> list[Any]:
    """Do all of them at one moment, each in a thread: their results, or the exceptions they raised."""
    barrier, results, until = Barrier(len(acts)), [None] * len(acts), monotonic() + within

    def go(place: int, act: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results[place] = act()
        except Exception as error:
            results[place] = error  # type: ignore[call-overload]

    threads = [Thread(target=go, args=(i, act)) for i, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, until - monotonic()))
        assert not thread.is_alive(), "a thread hangs"
    return results


@contextmanager
def beside(act: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do it in a thread beside the block; its result, or the exception it raised, is in the list afterwards."""
    results: list[Any] = []

    def go() -> None:
        try:
            results.append(act())
        except Exception as error:
            results.append(error)

    thread = Thread(target=go)
    thread.start()
    try:
        yield results
    finally:
        thread.join(60)
    assert not thread.is_alive(), "the thread hangs"


def until(true: Callable[[], Any], what: str = "it") -> None:
    """Wait until it is true; AssertionError after 20 s."""
    end = monotonic() + 20
    while not true():
        assert monotonic() < end, f"{what} did not happen"
        sleep(0.005)


def blocked(app_url: str) -> int:
    """How many of this role's connections wait for a lock; other roles' waits are not shown to it."""
    with psycopg.connect(app_url.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def owner(f: Fleet, sql: Any, url: str) -> None:
    """Execute as the owner of the tables."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(sql)


def due(f: Fleet, task: str) -> None:
    """The task's deadlines lie in the past now, and a sweep finds them."""
    with f.run.db.connection() as connection:
        for path in ("{due}", "{call,due}"):
            connection.execute(
                "UPDATE agent_tasks SET due_at = clock_timestamp() - interval '1 s',"
                " state = jsonb_set(state, %(path)s, to_jsonb(clock_timestamp() - interval '1 s'))"
                " WHERE id = %(id)s AND state #>> %(path)s IS NOT NULL",
                {"id": task, "path": path},
            )
    assert sweeps.make_due(f.run.db) == 1
