"""A thread's log as a stream: where it goes on, what it costs while nothing happens, and when it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg
import pytest
import uvicorn
from starlette.applications import Starlette

from console import api as control
from console.api import stream
from console.edge import edge
from tests.agents.notes.tools import KeepNote
from tests.callers import Callers, callers
from tests.hands import once, until
from tests.harness import Fleet, fleet
from workers.store import tokens

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose agent asks before it keeps a note."""
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as found:
        yield found


@pytest.fixture
def api(f: Fleet) -> Iterator[Callers]:
    """Its API."""
    with callers(f) as found:
        yield found


@dataclass
class Served:
    """The API behind a real server: a client, and what the application holds."""

    client: httpx2.Client
    held: Any
    bearer: dict[str, str]

    def events(self, task: str, most: int, **headers: str) -> list[tuple[int, str, Any]]:
        """The next events of a new stream, then the client goes away."""
        found: list[tuple[int, str, Any]] = []
        given = {**self.bearer, **STREAM, **headers}
        with self.client.stream("GET", f"/thread/{task}/events", headers=given) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            parts: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, text = line.partition(": ")
                parts[name] = text
                if name == "data":
                    found.append((int(parts["id"]), parts["event"], json.loads(text)))
                    if len(found) == most:
                        return found
        return found


@contextmanager
def served(f: Fleet) -> Iterator[Served]:
    """A server in a thread of its own."""
    held = edge(f.settings)
    _, secret = tokens.add(held.db, tenant="t1", principal="ann@example.org", roles=["reader"], agents=None)
    config = uvicorn.Config(
        Starlette(routes=control.routes(held)), port=0, log_config=None, access_log=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "serving")
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield Served(client, held, {"Authorization": f"Bearer {secret}"})
    finally:
        server.should_exit = True
        thread.join(20)
        held.close()


def test_a_stream_that_is_cut_goes_on_where_it_stopped_with_nothing_lost_or_doubled(f: Fleet) -> None:
    task = f.open()
    f.drain(task)
    with served(f) as s:
        first = s.events(task, 2)
        assert [seq for seq, *_ in first] == [1, 2]
        rest = s.events(task, 2, **{"Last-Event-ID": "2"})
        assert [seq for seq, *_ in rest] == [3, 4] and rest[-1][1] == "ApprovalAsked"
        asked = rest[-1][2]["data"]
        assert asked["intent"] == "keep_note", "as a page of the log shows it"
        got: list[Any] = []
        reader = threading.Thread(target=lambda: got.extend(s.events(task, 3, **{"Last-Event-ID": "4"})))
        reader.start()
        until(lambda: s.held and threading.active_count() > 2)
        f.operate.decide(task, asked["call_id"], approved=True, by="ann")
        assert f.drain(task) == "done"
        reader.join(20)
        assert [seq for seq, *_ in got] == [5, 6, 7]
        page = s.client.get(f"/thread/{task}/events?after=4", headers=s.bearer).json()["events"]
        assert [event for *_, event in got] == page[:3]


def test_streams_that_wait_hold_no_connection_and_are_counted_until_they_go(
    f: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_OF_ONE", 3)
    task = f.open()
    with served(f) as s:
        path, headers = f"/thread/{task}/events", {**s.bearer, **STREAM}
        streams = [s.client.stream("GET", path, headers=headers) for _ in range(3)]
        texts = [each.__enter__().iter_lines() for each in streams]
        assert [next(text) for text in texts] == ["retry: 1000"] * 3
        until(lambda: s.held.db.engine.pool.checkedout() == 0, "letting go of connections")
        with s.client.stream("GET", path, headers=headers) as refused:
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        for each in streams:
            each.__exit__(None, None, None)

        def again() -> bool:
            with s.client.stream("GET", path, headers=headers) as answer:
                return answer.status_code == 200

        until(again, "the places being free")


def test_a_stream_ends_with_its_token(f: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_S", 0.05)
    task = f.open()
    with served(f) as s, s.client.stream("GET", f"/thread/{task}/events", headers={**s.bearer, **STREAM}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        with f.run.db.connection() as connection:
            connection.execute("UPDATE tokens SET revoked_at = clock_timestamp() WHERE tenant = 't1'")
        f.drain(task)
        assert not [line for line in lines if line.startswith("data")], "no event after the token has ended"


def test_a_stream_ends_by_itself_and_an_outage_ends_it_too(f: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LIFE_S", 0.2)
    task = f.open()
    f.drain(task)
    with callers(f) as api:
        text = api.client.get(f"/thread/{task}/events?after=3", headers={**api.bearer("reader"), **STREAM}).text
        assert [line for line in text.splitlines() if line.startswith("id")] == ["id: 4"]
        monkeypatch.setattr("console.api.look.threads.events", _gone)
        assert api.client.get(f"/thread/{task}/events", headers=api.bearer("reader")).status_code == 503


def _gone(*_: Any, **__: Any) -> Any:
    raise psycopg.OperationalError


def test_a_stream_is_for_who_may_see_the_thread_and_shows_no_more_than_a_page(
    f: Fleet, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LIFE_S", 0.1)
    task = f.open()
    f.drain(task)
    path = f"/thread/{task}/events"
    assert api.client.get(path, headers=STREAM).status_code == 401
    assert api.client.get(path, headers={**api.bearer("reader", tenant="t2"), **STREAM}).status_code == 404
    assert api.client.get(path, headers={**api.bearer("reader", agents=["refunds"]), **STREAM}).status_code == 403
    for bad in ("x", "-1", "1.5", "99999999999", "\u0661"):
        given = {**api.bearer("reader"), **STREAM, "Last-Event-ID": bad.encode()}
        assert api.client.get(path, headers=given).status_code == 400  # type: ignore[arg-type]
    text = api.client.get(path, headers={**api.bearer("viewer"), **STREAM}).text
    assert "id: 4\nevent: ApprovalAsked\n" in text and "LOUD" not in text and "hello" not in text
    assert (
        api.client.head(path, headers={**api.bearer("reader"), **STREAM})
        .headers["content-type"]
        .startswith("application/json")
    )
