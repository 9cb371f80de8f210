"""What could not be read is kept, told and read anew; the end of one agent's run opens a task of another, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from console.cli import cli
from console.sources import sources
from delivery.log import LogChannel
from tests.callers import callers
from tests.hands import change, once
from tests.harness import Fleet, fleet
from triggers.schemes import STANDARD
from triggers.signature import sign
from triggers.webhook import routes
from twelvefold import DeclarationError, Done, Ended, Message, NothingToDo, Text, on, to
from workers import registry
from workers.registry import Registry
from workers.relay import deliver
from workers.settings import Settings, load

SECRET = "the secret of the parcels"
DECLARED = '{"parcels": {"scheme": "standard", "type": "parcel"}}'


def given(f: Fleet) -> dict[str, str]:
    return {
        "DATABASE_URL": f.settings.database_url.get_secret_value(), "BROKER_URL": "redis://127.0.0.1:1/0",
        "TWELVEFOLD_WEBHOOK_SOURCES": DECLARED, "PARCELS_WEBHOOK_SECRETS": SECRET, "AGENT_MODULES": "tests.agents",
        "TWELVEFOLD_TENANT": "t1",
    }  # fmt: skip


@contextmanager
def parcels(f: Fleet, settings: Settings) -> Iterator[Any]:
    """A sender of parcels: `send(id, payload)`."""
    app = Starlette(routes=routes(sources(settings), lambda said: f.intake.accept(said), lambda: datetime.now(UTC)))

    def send(id: str, payload: Any) -> Any:
        body, stamp = json.dumps(payload).encode(), str(int(datetime.now(UTC).timestamp()))
        signature = sign(STANDARD, SECRET.encode(), body, stamp, id)
        headers = {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}
        return client.post("/hooks/parcels", content=body, headers=headers).json()

    with TestClient(app) as client:
        yield send


def row(f: Fleet, key: str) -> dict[str, Any]:
    found = f.run.db.rows("SELECT * FROM arrivals WHERE source = 'parcels' AND key = %(key)s", {"key": key})
    return found[0]


def test_a_delivery_that_its_reader_cannot_read_is_kept_told_and_read_anew(fresh_database: Any) -> None:
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f:
        settings = load(given(f))
        with structlog.testing.capture_logs() as told, parcels(f, settings) as send:
            assert send("p-1", {"weight": 1.50}) == {"outcome": "failed", "reason": "mapping", "task_id": None}
            assert send("p-1", {"weight": 1.50})["outcome"] == "duplicate"
            assert send("p-2", {"state": "moving"})["reason"] == "on_its_way"
            assert send("p-3", {"number": 7})["outcome"] == "accepted"
        assert {(line["event"], line["log_level"]) for line in told} == {("mapping_failed", "error")}
        assert "weight" not in str(told)
        id = row(f, "p-1")["id"]
        with callers(f) as c:
            c.held = replace(c.held, settings=settings)
            failed = c.get("/arrivals?state=failed").json()["arrivals"]
            assert [(each["key"], each["reason"]) for each in failed] == [("p-1", "mapping")]
            assert "weight" not in str(failed)
            assert c.post(f"/arrivals/{id}/retry", {}, "requester").status_code == 403
            assert c.post(f"/arrivals/{id}/retry", {}, "operator", tenant="t2").status_code == 404
            still = c.post(f"/arrivals/{id}/retry", {}, "operator")
            assert (still.status_code, still.json()["outcome"]) == (202, "failed"), "the reader is still the old one"
            for other in (row(f, "p-2")["id"], row(f, "p-3")["id"]):
                assert c.post(f"/arrivals/{other}/retry", {}, "operator").status_code == 409
            assert c.post("/arrivals/99/retry", {}, "operator").status_code == 404
            assert c.post("/arrivals/x/retry", {}, "operator").status_code == 404
        mended = on.webhook("parcels", type="parcel", read=lambda said: Message(text=f"weighs {said['weight']}"))
        change(f, "desk", triggers=[mended])
        with callers(f) as c:
            taken = c.post(f"/arrivals/{id}/retry", {}, "operator").json()
            assert taken["outcome"] == "accepted"
            again = c.post(f"/arrivals/{id}/retry", {}, "operator")
            assert again.status_code == 409, "what opened a task opens no other"
        stored = row(f, "p-1")
        assert (stored["state"], stored["task_id"].hex) == ("accepted", taken["thread_id"].replace("-", ""))
        assert stored["payload"]["text"] == "weighs 1.5"
        assert f.drain(taken["thread_id"]) == "done"


def test_the_command_line_reads_anew_what_nobody_listened_to(fresh_database: Any, monkeypatch: Any) -> None:
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f, parcels(f, load(given(f))) as send:
        change(f, "desk", triggers=[])
        assert send("p-1", {"number": 7})["reason"] == "no_binding"
        id = row(f, "p-1")["id"]
        for name, value in given(f).items():
            monkeypatch.setenv(name, value)
        run = CliRunner()
        listed = run.invoke(cli, ["arrivals", "--source", "parcels", "--json"])
        assert [each["reason"] for each in json.loads(listed.output)] == ["no_binding"]
        done = run.invoke(cli, ["arrivals", "retry", str(id)])
        assert (done.exit_code, done.output.startswith("accepted: task ")) == (0, True), done.output
        assert run.invoke(cli, ["arrivals", "retry", str(id)]).exit_code == 1
        assert run.invoke(cli, ["arrivals", "retry", "4711"]).exit_code == 3
        assert row(f, "p-1")["state"] == "accepted"


def relayed(f: Fleet) -> list[str]:
    """Every letter to tasks, sent."""
    found = f.run.db.rows("SELECT id::text FROM outbox WHERE channel = 'task' ORDER BY created_at")
    letters = [each["id"] for each in found]
    return [deliver(letter, f.run, {"log": LogChannel(lambda _: None)}) for letter in letters]


def test_the_end_of_a_run_opens_one_task_of_each_follower_and_names_what_came_of_it(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Done(outcome=Text(text="three notes")))) as f:
        reads = on.finished("notes", when="always", read=lambda ended: Message(text=f"{ended.status}: {ended.outcome}"))
        change(f, "bench", triggers=[on.finished("notes", when="failed", read=lambda e: Message(text="never"))])
        change(f, "desk", triggers=[reads])
        task = f.open("notes")
        assert f.drain(task) == "done"
        assert relayed(f) == ["sent"]
        with f.run.db.connection() as connection:
            connection.execute("UPDATE outbox SET state = 'pending' WHERE channel = 'task'")
        assert relayed(f) == ["sent"], "the same once more"
        opened = f.run.db.rows("SELECT id::text, agent FROM agent_tasks WHERE id <> %(id)s", {"id": task})
        assert [each["agent"] for each in opened] == ["desk"]
        first = f.run.db.rows("SELECT * FROM arrivals WHERE task_id = %(id)s", {"id": opened[0]["id"]})[0]
        assert (first["source"], first["type"], first["proof"]) == ("task", "finished notes", "task")
        assert first["payload"]["text"] == "done: {'text': 'three notes'}"
        f.intake.message(task, source="api", key="more", text="again", sender="ann@example.org", proof="token:1")
        assert f.drain(task) == "done"
        relayed(f)
        assert f.one("SELECT count(*) FROM agent_tasks WHERE agent = 'desk'") == 2, "a second run ends a second time"


@pytest.mark.parametrize(
    ("triggers", "says"),
    [
        ({"desk": [on.finished("nobody")]}, "no agent has this name"),
        ({"desk": [on.finished("notes")]}, "must take one"),
        ({"desk": [on.finished("desk", read=Message.model_validate)]}, "never end"),
        ({"desk": [on.finished("notes", read=str)] * 2}, "twice"),
        ({"desk": [on.finished("notes", read=str)], "notes": [on.finished("bench", read=str)],
          "bench": [on.finished("desk", read=str)]}, "never end"),
    ],
)  # fmt: skip
def test_who_follows_whom_is_checked_when_agents_are_loaded(triggers: dict[str, Any], says: str) -> None:
    loaded = registry.load("tests.agents").loaded
    changed = [
        replace(entry, agent=replace(entry.agent, triggers=triggers.get(name, []), delegates=[]))
        for name, entry in loaded.items()
    ]
    with pytest.raises(DeclarationError, match=says):
        Registry(changed)


def test_an_ending_is_known_by_its_agent_and_kind() -> None:
    with pytest.raises(DeclarationError, match=r"on\.finished\('deploy'"):
        on.finished("", when="done")
    assert Ended(agent="a", task="t", status="done").outcome is None
    assert to.log("x").when == "always"
