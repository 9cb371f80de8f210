"""Waiting for the end of a turn over HTTP, and a web application that lets go of what it holds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import httpx2
import psycopg
import pytest
from starlette.testclient import TestClient

from console import web
from console.api import waiters
from console.api.waiters import Waiters
from console.embedded import free_port
from console.migrate import ROOT
from tests.agents.notes.tools import KeepNote
from tests.callers import callers, stepping
from tests.hands import beside, once, until
from tests.harness import NO_BROKER, Fleet, fleet
from twelvefold import Done, Task, Text
from twelvefold.state import WaitingFor
from workers.store import threads, tokens


def test_a_post_that_waits_answers_with_the_events_of_the_finished_turn(fresh_database: Any) -> None:
    def echo(task: Task) -> Any:
        return Done(outcome=Text(text=task.event.text))

    with fleet(fresh_database, echo) as f, callers(f) as api, stepping(f):
        first = api.post("/thread?wait=30", {"message": "one", "agent": "notes"})
        assert first.status_code == 200 and first.json()["status"] == "done"
        events = first.json()["events"]
        assert [event["type"] for event in events] == ["Arrived", "ModelAsked", "Decided", "Finished"]
        task = first.json()["thread_id"]
        assert events[-1]["data"]["intent"] == "done_for_now" and events[-1]["data"]["outcome"] == {"text": "one"}
        assert events[-1]["data"]["response_url"] == f"/thread/{task}/response"
        second = api.post(f"/thread/{task}/response?wait=30", {"type": "response", "response": "two"}, key="k")
        assert second.status_code == 200 and second.json()["outcome"] == {"text": "two"}
        assert [event["type"] for event in second.json()["events"]][:2] == ["Arrived", "Reopened"]
        again = api.post(f"/thread/{task}/response?wait=30", {"type": "response", "response": "two"}, key="k")
        assert again.json()["events"] == second.json()["events"]


def test_a_turn_ends_where_a_person_has_to_decide(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f, callers(f) as api, stepping(f):
        first = api.post("/thread?wait=30", {"message": "one", "agent": "notes"}).json()
        assert first["status"] == "waiting" and first["awaitingHumanApproval"]
        last = first["events"][-1]["data"]
        assert (last["intent"], last["text"]) == ("keep_note", "LOUD")
        yes = {"type": "approval", "approved": True, "call_id": last["call_id"], "digest": last["digest"]}
        second = api.post(f"{last['response_url']}?wait=30", yes)
        assert second.status_code == 200 and second.json()["status"] == "done"
        assert second.json()["events"][0]["type"] == "ApprovalMoved"


def test_a_turn_is_over_exactly_when_only_a_person_can_go_on(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f:
        task, over = f.open("notes"), {"approval", "answer", "budget", "operator", "settle"}
        for what in get_args(WaitingFor):
            with psycopg.connect(fresh_database.app.replace("+psycopg", "")) as connection:
                connection.execute("UPDATE agent_tasks SET status = 'waiting', waiting_for = %s", (what,))
            assert threads.resting(f.run.db, [task]) == ({task} if what in over else set()), what


def test_a_wait_ends_with_its_time_and_without_a_worker_or_a_broker(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f, callers(f) as api:
        answer = api.post("/thread?wait=0.2", {"message": "one", "agent": "notes"})
        assert answer.status_code == 202
        assert (answer.json()["status"], answer.json()["events"]) == ("ready", [])
        for wait in ("-1", "x", "61", "1e3", "nan"):
            assert api.post(f"/thread?wait={wait}", {"message": "one", "agent": "notes"}).status_code == 400
        assert api.post("/thread?waits=1", {"message": "one", "agent": "notes"}).status_code == 400
        assert api.get(f"/thread/{answer.json()['thread_id']}?wait=1").status_code == 400, "only a POST waits"
        assert f.one("SELECT count(*) FROM agent_tasks") == 1


def test_with_the_broker_down_a_thread_is_opened_and_left_to_the_sweep(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f, callers(f) as api:
        assert f.settings.broker_url.get_secret_value() == NO_BROKER
        task = api.post("/thread", {"message": "one", "agent": "notes"}).json()["thread_id"]
        assert f.row(task)["nudged_at"] is None
        assert f.drain(task) == "done"


def test_however_many_wait_one_look_at_a_time_serves_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "EVERY_S", 0.01)
    looks: list[int] = []
    under_way: list[int] = [0]
    done: set[str] = set()

    def look(ids: Sequence[str]) -> set[str]:
        under_way[0] += 1
        assert under_way[0] == 1, "never two at once"
        looks.append(len(ids))
        under_way[0] -= 1
        return done

    async def play() -> None:
        waiting = Waiters(look, most=500)
        tasks = [asyncio.create_task(waiting.rest(f"t{n % 250}", 30)) for n in range(500)]
        while not looks or looks[-1] < 250:
            await asyncio.sleep(0.001)
        assert threading.active_count() < 10
        await waiting.rest("t1", 30)
        assert waiting.count == 500, "one too many does not wait"
        done.update(f"t{n}" for n in range(250))
        await asyncio.gather(*tasks)
        assert waiting.count == 0
        seen = len(looks)
        await asyncio.sleep(0.05)
        assert len(looks) <= seen + 1, "nobody waits, nobody looks"
        done.clear()
        await waiting.rest("other", 0.02)
        assert looks[-1] == 1, "who comes later is looked for again"

    asyncio.run(play())


def test_a_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "EVERY_S", 0.01)
    monkeypatch.setattr(waiters, "UNAVAILABLE", (ConnectionError,))
    tries: list[int] = []

    def look(ids: Sequence[str]) -> set[str]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return set(ids)

    asyncio.run(asyncio.wait_for(Waiters(look).rest("t", 30), 20))
    assert len(tries) == 3


def held_by_http(f: Fleet) -> int:
    """How many connections the web application has to the database."""
    return int(
        f.one(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'twelvefold-http'"
        )
    )


@pytest.mark.parametrize("part", ["application", "public", "operator"])
def test_an_application_closes_its_connections_and_threads_when_it_ends(fresh_database: Any, part: str) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f:
        with TestClient(getattr(web, part)(f.settings)) as client:
            assert client.get("/livez").text == "ok"
            assert client.get("/readyz").status_code == 200
            assert client.get("/thread").status_code == (404 if part == "public" else 401)
            assert client.post("/hooks/none", content=b"{}").status_code == 404
            assert held_by_http(f) >= 1
        until(lambda: held_by_http(f) == 0, "letting go of the connections")
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("bell")]


def test_a_real_server_takes_a_message_and_leaves_in_time_without_a_word_about_tokens(
    fresh_database: Any, tmp_path: Path
) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f:
        _, secret = tokens.add(f.run.db, tenant="t1", principal="ann", roles=["requester"])
        port, log = free_port(), tmp_path / "http.log"
        argv = [sys.executable, "-m", "console.cli", "http", "--port", str(port), "--only", "operator"]
        environment = {
            **os.environ, "DATABASE_URL": fresh_database.app, "BROKER_URL": NO_BROKER, "PYTHONPATH": str(ROOT),
            "AGENT_MODULES": "tests.agents", "TWELVEFOLD_SOFT_SHUTDOWN": "1",
        }  # fmt: skip
        with log.open("wb") as out:
            server = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=out, stderr=out)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
                until(lambda: _answers(client) or server.poll() is not None, "the server")
                assert server.poll() is None, log.read_text()
                headers = {"Authorization": f"Bearer {secret}"}
                answer = client.post("/thread?wait=0.1", json={"message": "secret words"}, headers=headers)
                assert answer.status_code == 202 and answer.json()["agent"] == "notes"
                assert client.post("/hooks/github", content=b"{}").status_code == 404
                assert client.get("/thread", headers={"Authorization": f"Bearer {secret}x"}).status_code == 401
                wish = {"message": "more", "agent": "notes"}
                with beside(lambda: client.post("/thread?wait=60", json=wish, headers=headers)):
                    until(lambda: f.one("SELECT count(*) FROM agent_tasks") == 2, "the second one")
                    server.send_signal(signal.SIGTERM)
                    assert server.wait(20) in (0, -signal.SIGTERM), "who waits does not hold it up"
        finally:
            server.kill()
            server.wait()
        assert held_by_http(f) == 0
        said = log.read_text()
        assert secret not in said and "secret words" not in said


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False
