"""The verbs that stop and let go on, from the command line: one task or a scope, as text and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from console.cli import look
from tests.agents.notes.tools import KeepNote
from tests.hands import change, once
from tests.harness import fleet
from twelvefold import Budget
from workers.store import switches

from .test_cli_look import Verb, verb

__all__ = ["verb"]
LOUD = once(KeepNote(text="LOUD"))


def test_a_scope_is_paused_and_resumed_by_its_name(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, LOUD) as f:
        mine, other = f.open(), f.open("refunds", tenant="t2")
        assert verb("pause", "agent:notes", "--for", "2h", "--reason", "moving", "--by", "ann")[0] == 0
        assert verb("pause", "all", "--tenant", "t2") == (0, "pause of * holds\n")
        assert [f.step(task) for task in (mine, other)] == ["nothing"] * 2
        code, text = verb("switches")
        assert code == 0 and "agent:notes" in text and "every tenant, until 2" in text and "by ann: moving" in text
        assert "tenant t2, until it is lifted" in text
        assert len(json.loads(verb("switches", "--json", "--tenant", "t1")[1])) == 1
        assert "held by   pause of agent:notes" in verb("show", mine)[1]
        code, text = verb("resume", "agent:notes", "--json")
        assert json.loads(text) == {"kind": "pause", "scope": "agent:notes", "tenant": "*", "held": True}
        assert "there was no pause" in verb("resume", "agent:notes")[1]
        assert f.drain(mine) == "waiting" and f.step(other) == "nothing"


def test_effects_are_frozen_and_intake_is_stopped_and_opened(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, LOUD) as f:
        end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        code, text = verb("freeze", "tool:keep_note", "--until", end, "--reason", "audit", "--json")
        assert code == 0 and json.loads(text)["begun"] == []
        assert verb("intake", "stop")[0] == verb("intake", "stop", "all")[0] == 0
        assert [row["kind"] for row in switches.listed(f.run.db)] == ["freeze", "intake"]
        task = f.open()
        assert f.step(task) == "nothing"
        assert verb("intake", "open") == (0, "intake of * is lifted\n")
        assert f.drain(task) == "waiting"
        assert verb("unfreeze", "tool:keep_note")[0] == 0 and not switches.listed(f.run.db)


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "notes"), ("pause", "tool:pay"), ("freeze", "agent:"), ("pause", "all", "--for", "soon"),
        ("pause", "all", "--for", "0h"), ("freeze", "all", "--until", "2020-01-01T00:00:00Z"),
        ("freeze", "all", "--until", "2099-01-01T00:00:00"), ("freeze", "all", "--until", "later"),
        ("freeze", "all", "--until", "2099-01-01T00:00:00Z", "--for", "1h"),
        ("pause", str(uuid4()), "--reason", "x"), ("resume", str(uuid4()), "--tenant", "t1"),
        ("raise", str(uuid4())), ("raise", str(uuid4()), "--usd", "much"), ("raise", str(uuid4()), "--decisions", "-1"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_and_nothing_is_stored(
    fresh_database: Any, verb: Verb, words: tuple[str, ...]
) -> None:
    with fleet(fresh_database, LOUD) as f:
        code, text = verb(*words)
        assert code == 2 and text
        assert not switches.listed(f.run.db)


def test_a_budget_is_raised_and_a_quarantine_retried(fresh_database: Any, verb: Verb) -> None:
    with fleet(fresh_database, LOUD) as f:
        change(f, "notes", budget=Budget(decisions=1))
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET attempts = 3 WHERE id = %s", (task,))
        assert f.drain(task) == "quarantined"
        assert json.loads(verb("retry", task, "--json")[1]) == {"id": task, "became": "retrying"}
        assert verb("retry", task) == (0, "retrying\n")
        f.drain(task)
        f.operate.decide(task, 3 if f.state(task).call is None else f.state(task).call.seq, approved=True, by="a")  # type: ignore[union-attr]
        assert f.drain(task) == "waiting" and f.row(task)["waiting_for"] == "budget"
        end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        for _ in range(2):
            code, text = verb(
                "raise", task, "--decisions", "+10", "--usd", "0.50", "--active", "1.5", "--deadline", end,
                "--key", "k",
            )  # fmt: skip
            assert (code, text) == (0, "raised\n")
        assert f.drain(task) == "done"
        extra = f.state(task).extra
        assert (extra.decisions, str(extra.usd), extra.active_ms) == (10, "0.50", 1500)
        assert verb("raise", task, "--tokens", "1")[0] == 1, "it has ended"
        for words in (("pause",), ("resume",), ("cancel",), ("retry",), ("raise", "--tokens", "1")):
            assert verb(words[0], str(uuid4()), *words[1:])[0] == 3


def test_a_log_is_followed_line_by_line(fresh_database: Any, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        f.step(task)
        seen = f.state(task).seq
        looked: list[float] = []

        def moves_on(seconds: float) -> None:
            looked.append(seconds)
            if len(looked) > 2:
                raise KeyboardInterrupt
            f.drain(task)

        monkeypatch.setattr(look, "sleep", moves_on)
        code, text = verb("events", task, "--follow", "--jsonl", "--after", "1")
        assert code == 130
        told = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert [row["seq"] for row in told] == list(range(2, f.state(task).seq + 1)) and f.state(task).seq > seen
        assert verb("events", task, "--follow", "--json")[0] == 2
        assert verb("events", str(uuid4()), "--follow")[0] == 3
