"""The command line: what it shows, what it changes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from console.cli import cli
from tests.agents.notes.tools import KeepNote
from tests.curious import WHICH, curious
from tests.harness import Fleet, fleet
from twelvefold import Done, Task, Text
from twelvefold.tool import Tool


def shout(task: Task) -> Tool[Any]:
    """A note that needs approval, then the end."""
    return Done(outcome=Text(text="kept")) if task.did(KeepNote) or task.denied(KeepNote) else KeepNote(text="LOUD")


@pytest.fixture
def run(fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a verb against the fresh database: exit code and output."""
    monkeypatch.setenv("DATABASE_URL", fresh_database.app)
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("AGENT_MODULES", "tests.agents")

    def verb(*arguments: str) -> tuple[int, str]:
        answer = CliRunner().invoke(cli, [*arguments, "--home", str(tmp_path)])
        return answer.exit_code, answer.output

    return verb


def asked(f: Fleet) -> tuple[str, str]:
    """A task that waits for a person, and its call."""
    task = f.open()
    assert f.drain(task) == "waiting"
    call = f.state(task).call
    assert call is not None
    return task, str(call.seq)


def test_tasks_and_events_are_listed_as_text_and_as_json(fresh_database: Any, run: Any) -> None:
    with fleet(fresh_database, shout) as f:
        task, _ = asked(f)
        code, text = run("tasks")
        assert code == 0 and task in text and "waiting (approval)" in text
        code, text = run("tasks", "--json", "--status", "waiting")
        assert [row["id"] for row in json.loads(text)] == [task]
        code, text = run("events", task)
        assert code == 0 and "ApprovalAsked" in text
        code, text = run("events", task, "--json")
        assert [row["type"] for row in json.loads(text)] == f.kinds(task)


def test_a_task_that_is_not_there_is_code_three(run: Any) -> None:
    assert run("events", str(uuid4()))[0] == 3
    assert run("cancel", str(uuid4()))[0] == 3
    assert run("events", "no-id")[0] == 2


def test_approve_lets_the_call_run_and_a_second_opinion_is_refused(fresh_database: Any, run: Any) -> None:
    with fleet(fresh_database, shout) as f:
        task, call = asked(f)
        assert run("approve", task, call, "--by", "ann") == (0, "approved\n")
        assert run("approve", task, call, "--by", "bob") == (0, "approved\n")
        code, text = run("deny", task, call, "--by", "bob")
        assert code == 1 and "ann" in text
        assert f.drain(task) == "done"
        assert f.one("SELECT text FROM notes") == "LOUD"


def test_deny_closes_the_call(fresh_database: Any, run: Any) -> None:
    with fleet(fresh_database, shout) as f:
        task, call = asked(f)
        assert run("deny", task, call, "--comment", "too loud") == (0, "rejected\n")
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 0


def test_cancel_pause_and_resume(fresh_database: Any, run: Any) -> None:
    with fleet(fresh_database, shout) as f:
        task, _ = asked(f)
        assert run("pause", task)[0] == 0 and f.row(task)["paused_at"] is not None
        assert run("resume", task)[0] == 0 and f.row(task)["paused_at"] is None
        assert run("cancel", task)[0] == 0
        assert f.drain(task) == "cancelled"


def test_settle_wants_exactly_one_answer_and_a_call_in_doubt(fresh_database: Any, run: Any) -> None:
    with fleet(fresh_database, shout) as f:
        task, call = asked(f)
        assert run("settle", task, call)[0] == 2
        assert run("settle", task, call, "--not", "--abandon")[0] == 2
        code, text = run("settle", task, call, "--not")
        assert code == 1 and "not in doubt" in text


def test_what_is_not_configured_is_told_with_an_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    answer = CliRunner().invoke(cli, ["tasks", "--home", str(tmp_path)])
    assert answer.exit_code == 1
    assert "DATABASE_URL" in answer.output and "Example" in answer.output
    assert CliRunner().invoke(cli, ["worker", "--lane", "fast"]).exit_code == 2
    assert CliRunner().invoke(cli, ["flower"]).exit_code == 2
    assert CliRunner().invoke(cli, ["try", "--home", str(tmp_path)]).exit_code == 3


def test_respond_answers_the_open_question_or_writes_to_the_task(fresh_database: Any, run: Any) -> None:
    with curious(fresh_database, WHICH) as f:
        task = f.open("curious")
        f.drain(task)
        code, text = run("respond", task, "perhaps")
        assert code == 1 and "Refund, Replace" in text
        assert run("respond", task, "refund", "--call", "99")[0] == 3
        code, text = run("respond", task, "refund")
        assert code == 0 and "answered by" in text and f.drain(task) == "done"
        assert run("respond", task, "replace", "--call", "3")[0] == 1
        assert run("respond", task, "one more thing") == (0, "message accepted\n") and f.row(task)["status"] == "ready"
        assert run("respond", str(uuid4()), "hello")[0] == 3
