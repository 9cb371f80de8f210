"""Slack into a real database: who writes, clicks and types, what comes of it, and what is refused in a row."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from console import slack
from console.web import public
from tests.agents.signoff.tools import Ship
from tests.curious import ANN, DIRECTORY
from tests.fakes.slack_workspace import SECRET, Told, Workspace, told
from tests.hands import once
from tests.harness import Fleet, fleet
from triggers.slack import Choice, button
from twelvefold import AskHuman, Done, Text
from twelvefold.controls import Wait
from twelvefold.events import Arrived as ArrivedEvent
from workers.decisions import decide
from workers.intake import Intake
from workers.settings import Settings

PEOPLE = {"T1/U1": "ann@example.com", "T1/U2": "ben@example.com", "T1/U3": "cleo@example.com", "T1/U9": None}


@contextmanager
def slack_of(f: Fleet, answers: str = "http://127.0.0.1:1/", **change: Any) -> Iterator[Workspace]:
    """A workspace that is connected to this fleet, whose broker is down."""
    given = {
        **f.settings.model_dump(), "slack_signing_secrets": (SECRET,), "slack_users": PEOPLE, "slack_app_id": "A1",
        "slack_answers": answers, "tenant": "t1", **change,
    }  # fmt: skip
    settings = Settings.model_validate(given)
    with TestClient(public(settings)) as client:
        yield Workspace(client.post, answers)


def arrivals(f: Fleet) -> list[tuple[Any, ...]]:
    """What stands in the arrivals from Slack: state, reason, sender, type."""
    found = f.run.db.rows("SELECT state, reason, sender, type FROM arrivals WHERE source = 'slack' ORDER BY id")
    return [tuple(row.values()) for row in found]


def tasks(f: Fleet) -> list[str]:
    return [row["id"] for row in f.run.db.rows("SELECT id::text FROM agent_tasks ORDER BY id")]


def texts(f: Fleet, task: str) -> list[str]:
    """What people said to a task."""
    said = "SELECT payload ->> 'text' AS text FROM arrivals WHERE task_id = %(id)s AND kind = 'message' ORDER BY id"
    found = f.run.db.rows(said, {"id": task})
    return [row["text"] for row in found]


def test_a_mention_opens_a_task_once_and_its_thread_stays_with_it(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Wait(seconds=3600, why="it is early"))) as f, slack_of(f) as workspace:
        challenge = workspace.send("events", b'{"type":"url_verification","challenge":"3eZbrw1aB"}')
        assert challenge.json() == {"challenge": "3eZbrw1aB"}
        for late, secret in ((301, SECRET), (-301, SECRET), (0, "another")):
            body = b'{"type":"url_verification","challenge":"3eZbrw1aB"}'
            refused = workspace.send("events", body, secret, late)
            assert (refused.status_code, "3eZbrw1aB" in refused.text) == (401, False)
        first: dict[str, Any] = {"ts": "1700000000.000100"}
        assert workspace.says("<@UBOT> ship the pears &amp; figs", **first).content == b""
        workspace.says("<@UBOT> ship the pears &amp; figs", **first, retry=1)
        workspace.says("<@UBOT> ship the pears &amp; figs", **first, inner={"type": "message"})
        (task,) = tasks(f)
        assert texts(f, task) == ["ship the pears & figs"]
        assert f.drain(task) == "waiting"
        reply = {"type": "message", "thread_ts": "1700000000.000100"}
        assert workspace.says("and the plums", "U2", ts="1700000001.1", inner=reply).status_code == 200
        workspace.says("and the plums", "U2", ts="1700000001.1", inner=reply, retry=2)
        workspace.says("nothing for you", ts="1700000002.1", inner={"type": "message"})
        workspace.says("nor this", ts="1700000003.1", inner={"type": "message", "thread_ts": "1600000000.1"})
        workspace.says("I am a program", ts="1700000004.1", inner={**reply, "bot_id": "B1", "app_id": "A1"})
        assert texts(f, task) == ["ship the pears & figs", "and the plums"]
        assert tasks(f) == [task]
        assert arrivals(f) == [
            ("accepted", None, "ann@example.com", "message"), ("accepted", None, "ben@example.com", ""),
        ]  # fmt: skip
        f.drain(task)
        said: list[Any] = [event.payload for event in f.events(task) if isinstance(event, ArrivedEvent)]
        assert [set(dict(each)) for each in said] == [{"text", "subject", "sender"}] * 2, (
            "no id of Slack is in a prompt"
        )


def test_who_is_not_known_or_not_any_more_is_refused_and_a_row_says_so(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Done(outcome=Text(text="ok")))) as f, slack_of(f) as workspace:
        for n, (user, inner) in enumerate([("U999", {}), ("U9", {}), ("U1", {"user_team": "T2"})]):
            assert workspace.says("<@UBOT> pay me", user, ts=f"1.{n}", inner=inner).status_code == 200
        assert workspace.commands("/ship", "pears", "U999", "t9").json()["text"] == slack.NOT_YOU
        assert arrivals(f) == [
            ("ignored", "unknown_user", "T1/U999", ""), ("ignored", "deactivated", "T1/U9", ""),
            ("ignored", "foreign_team", "T2/U1", ""), ("ignored", "unknown_user", "T1/U999", ""),
        ]  # fmt: skip
        assert tasks(f) == []
        taken = workspace.commands("/ship", "pears").json()
        workspace.commands("/ship", "pears")
        (task,) = tasks(f)
        assert taken == {"response_type": "ephemeral", "text": f"Taken: task {task}."}
        assert "Nobody here takes /pay" in workspace.commands("/pay", "me", trigger="t2").json()["text"]
    with (
        fleet(fresh_database, once(Done(outcome=Text(text="ok")))) as f,
        slack_of(f, slack_signing_secrets=()) as workspace,
    ):
        assert workspace.says("hello", ts="1.1").status_code == 404, "without a secret there is no door"


@contextmanager
def asked(database: Any, **change: Any) -> Iterator[tuple[Fleet, Workspace, str, str, Told]]:
    """A task that waits for ann or ben, with a letter about it: fleet, workspace, task, letter, what is told."""
    ship = Ship(item="pears", risk="high", people="ann@example.com, ben@example.com")
    with fleet(database, once(ship)) as f, told() as answers, slack_of(f, answers.url, **change) as workspace:
        workspace.says("<@UBOT> ship pears", "U3", ts="1700000000.1")
        (task,) = tasks(f)
        assert f.drain(task) == "waiting"
        letter = f.one("SELECT id::text FROM outbox WHERE payload -> 'card' IS NOT NULL ORDER BY recipient LIMIT 1")
        yield f, workspace, task, letter, answers


def state(f: Fleet) -> tuple[str, str | None]:
    row = f.run.db.rows("SELECT state, decided_by FROM approvals ORDER BY asked DESC LIMIT 1")[0]
    return row["state"], row["decided_by"]


def test_a_button_decides_for_whom_was_asked_once_and_tells_whoever_clicked(fresh_database: Any) -> None:
    with asked(fresh_database) as (f, workspace, task, letter, answers):
        for n, (user, team, says) in enumerate([("U999", "T1", slack.NOT_YOU), ("U3", "T1", "not among"),
                                                ("U1", "T2", slack.NOT_YOU)], 1):  # fmt: skip
            clicked = workspace.clicks(button(letter, "approve"), user, team)
            assert (clicked.status_code, clicked.content) == (200, b"")
            assert says in answers.next(n)
        assert answers.all[-1]["replace_original"] is False
        assert [row[:3] for row in arrivals(f)[1:]] == [
            ("ignored", "unknown_user", "T1/U999"), ("ignored", "not_asked", "T1/U3"),
            ("ignored", "foreign_team", "T2/U1"),
        ]  # fmt: skip
        assert state(f) == ("pending", None)
        assert workspace.clicks("pay:approve").status_code == 200
        workspace.clicks(button("0190a0a0-0000-5000-8000-000000000001", "approve"))
        assert "nothing to decide" in answers.next(4)
        workspace.clicks(button(letter, "approve"), "U2", response_url="http://169.254.169.254/x")
        with ThreadPoolExecutor(4) as threads:
            more: list[tuple[Choice, str]] = [("approve", "U1"), ("reject", "U1"), ("reject", "U2"), ("approve", "U2")]
            again = [threads.submit(workspace.clicks, button(letter, choice), user) for choice, user in more]
            assert {each.result().status_code for each in again} == {200}
        assert "lready" in answers.next(8) or "approved" in answers.next(8)
        assert state(f) == ("approved", "ben@example.com")
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 1


def test_b128_an_edited_request_makes_the_old_card_outdated_and_a_deleted_one_ends_the_task(
    fresh_database: Any,
) -> None:
    with asked(fresh_database) as (f, workspace, task, letter, answers):
        message = {"user": "U3", "ts": "1700000000.1", "text": "<@UBOT> ship 1000 pears"}
        before = {**message, "text": "<@UBOT> ship pears"}
        change = {"type": "message", "previous_message": before, "user": None}
        deleted = {**change, "subtype": "message_deleted", "previous_message": message}
        unfolded = {**change, "subtype": "message_changed", "message": {**before, "attachments": [{"id": 1}]}}
        workspace.says("", ts="1700000005.1", inner=unfolded)
        assert texts(f, task)[:1] == ["ship pears"]
        assert len(texts(f, task)) == 1
        edited = {**change, "subtype": "message_changed", "message": {**message, "edited": {"ts": "1700000006.1"}}}
        for _ in range(2):
            workspace.says("", ts="1700000006.1", inner=edited)
        assert texts(f, task) == ["ship pears", "(edited) ship 1000 pears"]
        workspace.clicks(button(letter, "approve"))
        assert "Somebody wrote since you looked" in answers.next(1)
        assert state(f)[0] != "approved"
        workspace.says("", ts="1700000007.1", inner=deleted)
        assert f.drain(task) == "cancelled"
        workspace.says("", ts="1700000007.1", inner=deleted)
        assert f.one("SELECT count(*) FROM notes") == 0


def test_a_reply_in_the_thread_answers_a_question_and_decides_nothing(fresh_database: Any) -> None:
    reply = {"type": "message", "thread_ts": "1700000000.1"}
    with asked(fresh_database) as (f, workspace, task, _, _):
        workspace.says("approve", ts="1700000001.1", inner=reply)
        assert state(f) == ("pending", None)
        assert texts(f, task)[-1] == "approve"
    question = AskHuman(reason="Which size?", target="ann")
    users = {"T1/U1": ANN}
    with fleet(fresh_database, once(question), directory=DIRECTORY) as f, slack_of(f, slack_users=users) as workspace:
        workspace.says("<@UBOT> ship figs", ts="1700000009.1")
        task = tasks(f)[-1]
        assert f.drain(task) == "waiting"
        for retry in (0, 1):
            workspace.says("large", ts="1700000010.1", inner={**reply, "thread_ts": "1700000009.1"}, retry=retry)
        assert f.one("SELECT answer FROM approvals WHERE task_id = %(id)s", id=task) == "large"


class Held:
    """A database that stands still until it is let go."""

    def __init__(self, real: Any) -> None:
        self.real, self.go, self.came = real, threading.Event(), threading.Event()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.came.set()
        assert self.go.wait(30)
        return self.real(*given, **named)


def test_b118_slack_is_answered_in_time_by_a_slow_database_and_nothing_is_lost_or_done_twice(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asked(fresh_database) as (f, workspace, _, letter, answers):
        monkeypatch.setattr(slack, "ACK_S", 0.05)
        slow = Held(decide)
        monkeypatch.setattr(slack, "decide", slow)
        clicked = workspace.clicks(button(letter, "approve"))
        assert (clicked.status_code, state(f)) == (200, ("pending", None)), "answered before it is decided"
        slow.go.set()
        assert "approved by ann@example.com" in answers.next(1)
        assert state(f) == ("approved", "ann@example.com")
        slow = Held(Intake.accept)
        monkeypatch.setattr(Intake, "accept", lambda *a: slow(*a))
        first = workspace.says("<@UBOT> ship figs", ts="1700000009.1")
        assert (first.status_code, first.headers["retry-after"], len(tasks(f))) == (503, "5", 1)
        slow.go.set()
        monkeypatch.setattr(slack, "ACK_S", 30)
        retried = workspace.says("<@UBOT> ship figs", ts="1700000009.1", retry=1)
        assert (retried.status_code, len(tasks(f))) == (200, 2)
        assert json.loads(retried.content or b"null") is None
