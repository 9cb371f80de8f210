"""The verbs that open a task and those that only look: what they say, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from typer.testing import CliRunner

from console.cli import cli, main
from tests.agents.notes.tools import KeepNote
from tests.callers import dump, stepping
from tests.hands import once
from tests.harness import NO_BROKER, Fleet, fleet
from triggers.envelope import Arrived

Verb = Callable[..., tuple[int, str]]


@pytest.fixture
def verb(fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Verb:
    """Run a verb against the fresh database: exit code and output."""
    monkeypatch.setenv("DATABASE_URL", fresh_database.app)
    monkeypatch.setenv("BROKER_URL", NO_BROKER)
    monkeypatch.setenv("AGENT_MODULES", "tests.agents")

    def run(*arguments: str) -> tuple[int, str]:
        answer = CliRunner().invoke(cli, [*arguments, "--home", str(tmp_path)])
        return answer.exit_code, answer.output

    return run


def asked(f: Fleet) -> tuple[str, int]:
    """A task that waits for a person, and its call."""
    task = f.open()
    assert f.drain(task) == "waiting"
    call = f.state(task).call
    assert call is not None
    return task, call.seq


def test_show_tells_where_a_task_stands_and_how_to_go_on(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task, call = asked(f)
        code, text = verb("show", task)
        assert code == 0
        for part in (
            "waiting (approval), step 1, run 1", "1 of 50 decisions", f"call      {call} keep_note (asked)", "LOUD",
            f"asked of #notes: twelvefold approve {task} {call}", "ApprovalAsked",
        ):  # fmt: skip
            assert part in text
        f.operate.decide(task, call, approved=True, by="ann")
        assert f.drain(task) == "done"
        code, text = verb("show", task)
        assert "approved by ann" in text and "letter    pending email notes@example.org" in text
        found = json.loads(verb("show", task, "--json")[1])
        assert (found["status"], found["used"]["decisions"], found["limit"]["decisions"]) == ("done", 2, 50)
        assert [row["channel"] for row in found["letters"]].count("email") == 1 and "state" not in found
        assert verb("show", str(uuid4()))[0] == 3
        assert verb("show", "no-id")[0] == 2


def test_open_questions_letters_and_arrivals_are_listed(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task, call = asked(f)
        f.intake.accept(Arrived("t1", "github", "d1", "star.created", {}, b"{}", {}, "eve", None, "hmac"))
        code, text = verb("approvals")
        assert code == 0 and f"twelvefold approve {task} {call}" in text and "keep_note" in text
        assert json.loads(verb("approvals", "--json")[1])[0]["task_id"] == task
        assert verb("approvals", "--tenant", "t2")[1] == ""
        code, text = verb("arrivals")
        assert code == 0 and "ignored(no_binding)" in text and "accepted" in text and "star.created" in text
        ignored = json.loads(verb("arrivals", "--state", "ignored", "--source", "github", "--json")[1])
        assert [(row["key"], row["reason"]) for row in ignored] == [("d1", "no_binding")]
        assert "payload" not in ignored[0]
        f.operate.decide(task, call, approved=False, by="ann")
        assert f.drain(task) == "done"
        code, text = verb("outbox", "--state", "pending")
        assert code == 0 and "email notes@example.org" in text and task in text
        assert json.loads(verb("outbox", "--state", "sent", "--json")[1]) == []
        assert verb("tasks", "--agent", "refunds")[1] == "" and task in verb("tasks", "--agent", "notes")[1]


def test_looking_changes_nothing(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        task, _ = asked(f)
        before = dump(f)
        for arguments in (["tasks"], ["events", task], ["show", task], ["approvals"], ["arrivals"], ["outbox"]):
            assert verb(*arguments)[0] == 0
            assert verb(*arguments, "--json")[0] == 0
        assert dump(f) == before


def test_run_opens_a_task_with_what_the_agent_accepts(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, once(KeepNote(text="x"))) as f:
        code, text = verb("run", "notes", "--input", '"buy milk"')
        assert code == 0
        task = text.strip()
        assert f.one("SELECT payload ->> 'text' FROM arrivals") == "buy milk"
        assert f.row(task)["tenant"] == "default"
        assert verb("run", "notes", "--input", '{"text": "more", "sender": "bob"}')[0] == 0
        before = dump(f)
        for arguments, code in (
            (["nobody", "--input", '"x"'], 3), (["notes", "--input", "{"], 2), (["notes", "--input", "x"], 2),
            (["notes", "--input", '{"words": 1}'], 2), (["notes", "--input", '{"text": "a", "text": "b"}'], 2),
            (["notes"], 2),
        ):  # fmt: skip
            found, text = verb("run", *arguments)
            assert found == code, text
        assert "notes" in verb("run", "nobody", "--input", "1")[1]
        assert dump(f) == before


@pytest.mark.parametrize(
    ("text", "status", "code"), [("quiet", "done", 0), ("LOUD", "waiting", 0), ("x", "cancelled", 1)]
)
def test_run_and_wait_tells_what_happens_and_how_it_ended(
    fresh_database: Any, verb: Verb, text: str, status: str, code: int
) -> None:
    with fleet(fresh_database, once(KeepNote(text=text))) as f:
        first = (lambda task: f.operate.cancel(task, by="ann")) if status == "cancelled" else str
        with stepping(f, first):
            said = verb("run", "notes", "--input", '"hello"', "--wait")
            told = verb("run", "notes", "--input", '"hello"', "--wait", "--json")
        assert said[0] == told[0] == code
        assert "Arrived" in said[1]
        assert json.loads(told[1])["status"] == status


def test_a_database_that_is_away_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somebody:verysecret@127.0.0.1:1/nowhere")
    monkeypatch.setenv("BROKER_URL", NO_BROKER)
    monkeypatch.setattr("sys.argv", ["twelvefold", "tasks", "--home", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert "twelvefold doctor" in str(ended.value) and "verysecret" not in str(ended.value) + "".join(
        capsys.readouterr()
    )


PROCESSES = {"worker", "http", "flower", "stand-ins", "up", "demo", "try", "migrate", "client", "mail-in"}
"""Verbs that become a process, play something for people to watch, or print a file."""


def test_every_verb_that_says_something_says_it_as_json_too() -> None:
    group = typer.main.get_command(cli)
    for name, verb_ in group.commands.items():  # type: ignore[attr-defined]
        for each in getattr(verb_, "commands", {name: verb_}).values():
            options = {option for parameter in each.params for option in parameter.opts}
            assert ("--json" in options) == (name not in PROCESSES), each.name


def test_every_verb_has_a_screen_of_help() -> None:
    runner = CliRunner()
    verbs = set(typer.main.get_command(cli).commands)  # type: ignore[attr-defined]
    assert {"run", "show", "arrivals", "approvals", "outbox", "doctor", "tasks", "events", "token"} <= verbs
    assert {"cancel", "pause", "resume", "retry", "raise", "freeze", "unfreeze", "intake", "switches"} <= verbs
    groups = [["token", verb] for verb in ("new", "list", "revoke")] + [["intake", verb] for verb in ("stop", "open")]
    groups += [["grants", "revoke"], ["arrivals", "retry"]]
    for path in [[verb] for verb in verbs] + groups:
        answer = runner.invoke(cli, [*path, "--help"])
        assert answer.exit_code == 0 and len(answer.output.splitlines()) <= 40, path
