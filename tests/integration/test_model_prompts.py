"""What a model was sent can be shown afterwards, byte for byte, whatever was deployed or deleted since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from console.cli import cli
from console.sent import Gone, sent
from tests.agents.notes.tools import CountNotes
from tests.fakes import openai_server as say
from tests.hands import change
from tests.harness import NO_BROKER, Fleet, fleet
from twelvefold import Done, Task, Text
from twelvefold.events import ModelAsked
from twelvefold.tool import Tool
from workers.model import OpenAIModel
from workers.profiles import PROFILES
from workers.prompts import Part
from workers.registry import Registry


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


@contextmanager
def asking(database: Any, profile: str = "openai") -> Iterator[tuple[Fleet, say.FakeOpenAI]]:
    """A fleet whose model is a server."""
    with fleet(database, done, commit="c0ffee") as f, say.FakeOpenAI() as server:
        model = OpenAIModel("sk-test", server.base_url, PROFILES[profile])
        f.run = replace(f.run, model=model, scripted=False, profile=PROFILES[profile])
        yield f, server
        model.close()


def asked(f: Fleet, task: str) -> list[int]:
    """The seqs of the requests."""
    return [seq for seq, event in enumerate(f.events(task), 1) if isinstance(event, ModelAsked)]


@pytest.mark.parametrize("profile", ["openai", "llama.cpp"])
def test_the_bytes_of_every_request_can_be_shown_after_everything_changed(
    fresh_database: Any, profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with asking(fresh_database, profile) as (f, server):
        loaded = f.run.registry["notes"]
        parts = (Part("prompts/one.md", "You keep notes.\nAlways."), Part("prompts/two.md", "Be short."))
        entry = replace(loaded, parts=parts, prompt="\n\n".join(part.text for part in parts))
        others = [each for name, each in f.run.registry.loaded.items() if name != "notes"]
        f.run = replace(f.run, registry=Registry([entry, *others]))
        server.script(say.in_turn(
            say.tool_call("count_notes", {"topic": "milk"}), say.tool_call("nosuch", {}),
            say.tool_call("count_notes", {"topic": "tea"}),
            say.tool_call("done", {"outcome": {"text": "été 漢 🙂"}}),
        ))  # fmt: skip
        task = f.open(text='Say "hello" </task> & 漢字\n<b>\\u0000system\\u0000')
        assert f.drain(task) == "done", f.events(task)
        requests, seqs = [seen.raw for seen in server.requests], asked(f, task)
        assert len(requests) == len(seqs) == 4

        # prompt file, tool docstring, what a tool shows, and the rendering itself
        monkeypatch.setattr(CountNotes, "__doc__", "Count. Use when told.")
        monkeypatch.setattr(CountNotes, "show", lambda self, result: "another view", raising=False)
        monkeypatch.setattr("twelvefold.window.tag", lambda *a, **k: "<changed/>")
        change(f, "notes", prompt="other.md")
        assert [sent(f.run.db, task, seq).body.encode() for seq in seqs] == requests  # type: ignore[union-attr]

        found = sent(f.run.db, task, seqs[1] + 1)
        assert found is not None and found.seq == seqs[1], "an answer names the request that it answers"
        assert [(p["file"], p["line"], p["commit"]) for p in found.parts] == [
            ("prompts/one.md", 1, "c0ffee"), ("prompts/two.md", 4, "c0ffee"),
        ]  # fmt: skip
        _cli_and_redaction(f, task, seqs, requests, fresh_database, monkeypatch, tmp_path)


def _cli_and_redaction(
    f: Fleet, task: str, seqs: list[int], requests: list[bytes], database: Any, monkeypatch: Any, home: Path
) -> None:
    for name, value in {"DATABASE_URL": database.app, "BROKER_URL": NO_BROKER, "AGENT_MODULES": "tests.agents"}.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli, ["prompt", task, str(seqs[2]), "--home", str(home)])
    assert (shown.exit_code, shown.stdout_bytes) == (0, requests[2])
    assert "prompts/two.md" in shown.stderr and "line 4" in shown.stderr and "c0ffee" in shown.stderr
    as_json = CliRunner().invoke(cli, ["prompt", task, str(seqs[2]), "--json", "--home", str(home)])
    assert json.loads(as_json.stdout)["body"].encode() == requests[2]
    assert CliRunner().invoke(cli, ["prompt", task, "1", "--home", str(home)]).exit_code == 3
    with psycopg.connect(database.owner.replace("+psycopg", ""), autocommit=True) as owner:
        assert owner.execute("DELETE FROM renderings WHERE task_id = %s AND seq = 1", (task,)).rowcount
        gone = CliRunner().invoke(cli, ["prompt", task, str(seqs[2]), "--home", str(home)])
        assert gone.exit_code == 5 and "redacted" in gone.output and "hello" not in gone.output
        # what does not hash to what was sent is not shown either
        owner.execute("UPDATE renderings SET text = text || ' ' WHERE task_id = %s", (task,))
    with pytest.raises(Gone):
        sent(f.run.db, task, seqs[3])


def test_a_step_stores_what_is_new_in_its_window_and_nothing_twice(fresh_database: Any) -> None:
    with asking(fresh_database) as (f, server):
        server.script(say.tool_call("nosuch", {}))
        change(f, "notes", on_stuck="operator")
        task = f.open(text="x" * 3_000)
        f.step(task)
        first = f.one("SELECT sum(length(text)) FROM renderings WHERE task_id = %(id)s", id=task)
        f.step(task)
        second = f.one("SELECT sum(length(text)) FROM renderings WHERE task_id = %(id)s", id=task)
        assert 3_000 < first < 3_600 and 0 < second - first < 600, "the second step wrote its new event only"
        assert f.one("SELECT count(*) FROM texts") == 2, "one frame and one prompt part, for both steps"
        other = f.open(text="y")
        f.step(other)
        assert f.one("SELECT count(*) FROM texts") == 2, "and for other tasks"
