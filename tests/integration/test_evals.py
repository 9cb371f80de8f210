"""`twelvefold eval`: cases of an agent against its model, without a tool that runs, scored by prompt part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from console.cli import cli
from tests.agents.notes.agent import agent
from tests.agents.notes.tools import CountNotes, KeepNote
from tests.fakes import openai_server as say
from tests.harness import NO_BROKER
from twelvefold import Agent, Done, Task, Text
from twelvefold.errors import DeclarationError
from twelvefold.ports import ModelReply, ProposedCall
from twelvefold.schema import arguments_of
from twelvefold.tool import Tool
from twelvefold.window import Window
from workers import registry
from workers.evals import Case, cases, evaluate, scores
from workers.prompts import Part
from workers.registry import Loaded

PARTS = (Part("prompts/a.md", "Count."), Part("prompts/b.md", "Keep."))


def script(task: Task) -> Tool[Any]:
    """Count, then keep what is asked to be kept loudly, then tell."""
    if not task.did(CountNotes):
        return CountNotes(topic="milk")
    if not (task.did(KeepNote) or task.denied(KeepNote)):
        return KeepNote(text="LOUD")
    return Done(outcome=Text(text=f"{task.last(cast(Any, CountNotes))} notes"))


def ask(window: Window, task: Task) -> ModelReply:
    """The script as a model."""
    assert "<task>" in window.user and window.system
    call = script(task)
    return ModelReply(calls=(ProposedCall(call.__spec__.name, arguments_of(call)),), tokens_in=5)


def loaded(declared: Agent = agent) -> Loaded:
    """The agent with two prompt parts."""
    return Loaded(declared, "Count.\n\nKeep.", "v", None, PARTS)


def case(name: str, **more: Any) -> Case:
    """A case of the notes."""
    results = {"count_notes": 7, "keep_note": {"id": 1, "text": "LOUD"}}
    return Case.model_validate({"name": name, "message": {"text": "go"}, "results": results, **more})


def test_a_case_runs_the_agent_and_none_of_its_tools_and_says_what_was_missed() -> None:
    found = [
        case("good", part="a.md", expect={
            "status": "done", "calls": ["count_notes", "done"], "says": ["7 notes"], "decisions": 3,
            "outcome": {"text": "7 notes"},
        }),
        case("denied", part="b.md", approve=False, expect={"calls": ["keep_note", "done"], "status": "done"}),
        case("wrong", part="b.md", expect={
            "status": "failed", "never": ["keep_note"], "calls": ["done", "keep_note"], "says": ["8"],
            "outcome": {"text": "8"}, "decisions": 1,
        }),
        case("no result", results={"count_notes": 1}, expect={"status": "done"}),
    ]  # fmt: skip
    runs = list(evaluate(loaded(), found, 2, ask))
    missed = {run.case: run.missed for run in runs}
    assert missed["good"] == missed["denied"] == () and runs[0].tokens == 15
    assert [text.split()[0] for text in missed["wrong"]] == ["status", "calls", "called", "text", "does", "3"]
    assert missed["no result"] and "status waiting" in missed["no result"][0]
    assert [(s.part, s.passed, s.runs) for s in scores(loaded(), found, runs)] == [
        ("prompts/a.md", 2, 4), ("prompts/b.md", 2, 6),
    ]  # fmt: skip


def test_a_file_that_is_no_case_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "one.json").write_text('{"message": {"text": "x"}, "expect": {"stats": "done"}}')
    with pytest.raises(DeclarationError, match=r"evals/one\.json is no case: expect\.stats"):
        cases(tmp_path)


def test_eval_asks_the_configured_model_and_its_exit_code_is_the_threshold(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    (folder / "evals").mkdir(parents=True)
    expect = {"status": "done", "says": ["fine"]}
    (folder / "evals" / "one.json").write_text(json.dumps({"message": {"text": "go"}, "expect": expect}))
    real = registry.load("tests.agents")
    entry = real.loaded["notes"]
    moved = {**real.loaded, "notes": Loaded(entry.agent, entry.prompt, entry.version, None, entry.parts, folder)}
    monkeypatch.setattr(real, "loaded", moved)
    monkeypatch.setattr("console.cli.evals.registry.load", lambda modules: real)
    with say.FakeOpenAI() as server:
        for name, value in {
            "DATABASE_URL": fresh_database.app, "BROKER_URL": NO_BROKER, "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": server.base_url,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        good, bad = (say.tool_call("done", {"outcome": {"text": text}}) for text in ("fine", "bad"))

        def verb(*more: str) -> Any:
            server.script(say.in_turn(good, bad, good, good))
            return CliRunner().invoke(cli, ["eval", "notes", "--runs", "4", "--home", str(tmp_path), *more])

        strict, lenient = verb(), verb("--threshold", "0.75", "--json")
    assert strict.exit_code == 1 and "MISS one  does not say 'fine'" in strict.output and "3 of 4" in strict.output
    told = json.loads(lenient.output)
    assert (lenient.exit_code, told["passed"], told["parts"][0]["passed"]) == (0, 3, 3)
    assert CliRunner().invoke(cli, ["eval", "nobody", "--home", str(tmp_path)]).exit_code == 3
