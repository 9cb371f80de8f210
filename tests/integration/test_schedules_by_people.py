"""Schedules from the command line and over HTTP: what they mean is said, what is wrong is refused, tenants apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from console.doctor import examine
from tests.agents.notes.tools import KeepNote
from tests.callers import Callers, callers
from tests.hands import change, once
from tests.harness import Fleet, fleet
from twelvefold import on
from workers.store import schedules
from workers.timetable import Timetable

from .test_cli_look import Verb, verb

__all__ = ["verb"]


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet."""
    with fleet(fresh_database, once(KeepNote(text="LOUD")), tenant="t1") as found:
        yield found


def test_a_schedule_is_made_edited_paused_and_backfilled_from_the_command_line(f: Fleet, verb: Verb) -> None:
    words = ("schedules", "new", "notes", "sweep", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--tenant", "t1")
    code, text = verb(*words, "--message", "look around", "--dry-run")
    assert code == 0 and "At 09:00 on Monday through Friday, Europe/Berlin" in text and text.count("T09:00+0") == 5
    assert not schedules.listed(f.run.db)
    assert verb(*words)[0] == 1, "notes accepts no Tick"
    assert verb(*words, "--message", "look around")[0] == 0
    assert verb(*words, "--message", "look around")[0] == 1, "the name is taken"
    code, text = verb("schedules", "edit", "notes.sweep", "--cron", "@hourly", "--overlap", "allow", "--tenant", "t1")
    assert code == 0 and "overlap allow" in text
    code, text = verb("schedules", "pause", "notes.sweep", "--by", "ann", "--tenant", "t1", "--json")
    assert code == 0 and json.loads(text)["paused_by"] == "ann"
    assert "paused by ann" in verb("schedules", "list", "--tenant", "t1")[1]
    assert verb("schedules", "resume", "notes.sweep", "--tenant", "t1")[0] == 0
    stretch = ("--begin", "2026-01-01T00:00Z", "--end", "2026-01-01T02:00Z", "--tenant", "t1")
    code, text = verb("schedules", "backfill", "notes.sweep", *stretch)
    assert code == 0 and text.count("accepted") == 3
    assert verb("schedules", "backfill", "notes.sweep", *stretch)[1].count("backfilled before") == 3
    assert verb("schedules", "list", "--json") == (0, "[]\n"), "another tenant's are not there"
    assert verb("schedules", "pause", "notes.sweep")[0] == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("new", "notes", "sweep", "0 24 * * *"), "hour"), (("new", "notes", "sweep", "@reboot"), "@hourly"),
        (("new", "notes", "Sweep It", "@daily"), "lower-case"), (("new", "notes", "s", "@daily", "--tz", "X"), "zone"),
        (("new", "notes", "s", "@daily", "--overlap", "no"), "overlap"), (("edit", "notes.s"), "what changes"),
        (("new", "notes", "s", "@daily", "--event", "{"), "JSON"),
        (("new", "notes", "s", "@daily", "--event", "1", "--message", "x"), "not both"),
        (("new", "notes", "s", "@daily", "--jitter", "9999999"), "jitter"),
        (("backfill", "notes.s", "--begin", "now", "--end", "now"), "no time"),
        (("backfill", "notes.s", "--begin", "2026-01-01T00:00", "--end", "2026-01-01T00:00"), "time zone"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told(f: Fleet, verb: Verb, words: tuple[str, ...], told: str) -> None:
    code, text = verb("schedules", *words)
    assert code == 2 and told in text
    assert not schedules.listed(f.run.db)


def test_operators_keep_schedules_over_http_each_of_their_own_tenant_and_agents(f: Fleet) -> None:
    change(f, "notes", triggers=[on.cron("@daily", name="told")])
    Timetable(f.intake).declare("t1")
    with callers(f) as api:
        body = {"agent": "notes", "name": "sweep", "cron": "0 9 * * 1-5", "event": {"text": "x"}, "jitter": 60}
        seen = api.post("/schedules", {**body, "dry_run": True}, "operator")
        assert seen.status_code == 200 and "09:00" in seen.json()["means"]
        made = api.post("/schedules", body, "operator").json()
        assert (made["name"], made["state"], made["jitter"], len(made["next"])) == ("notes.sweep", "fires", 60, 5)
        assert "text" not in json.dumps(made), "what it opens with is content"
        names = [each["name"] for each in api.get("/schedules", "viewer").json()["schedules"]]
        assert names == ["notes.sweep", "notes.told"]
        assert api.get("/schedules", tenant="t2").json()["schedules"] == []
        assert api.get("/schedules", agents=["refunds"]).json()["schedules"] == []
        _are_refused(api, body)
        named = {"name": "notes.sweep"}
        assert api.post("/schedules/pause", named, "operator").json()["state"] == "paused"
        assert api.post("/schedules/resume", named, "operator").json()["state"] == "fires"
        edited = api.post("/schedules/edit", {**named, "cron": "@hourly", "tz": "Asia/Kolkata"}, "operator").json()
        assert edited["next"][0].endswith("+05:30")
        stretch = {"begin": "2026-01-01T00:00+05:30", "end": "2026-01-01T01:00+05:30"}
        filled = api.post("/schedules/backfill", {**named, **stretch}, "operator")
        assert filled.status_code == 202 and [each["became"] for each in filled.json()["times"]] == ["accepted"] * 2


def _are_refused(api: Callers, body: dict[str, Any]) -> None:
    """What may not be, or cannot be."""
    said: list[tuple[str, dict[str, Any], int, dict[str, Any]]] = [
        ("", body, 409, {}), ("", {**body, "cron": "* * * * * *"}, 422, {}), ("", {**body, "agent": "nobody"}, 404, {}),
        ("", {**body, "name": "b", "event": {"no": 1}}, 409, {}), ("", {**body, "often": 1}, 400, {}),
        ("", {**body, "name": "b"}, 403, {"agents": ["refunds"]}),
        ("/pause", {"name": "notes.none"}, 404, {}), ("/pause", {"name": "notes.sweep"}, 404, {"tenant": "t2"}),
        ("/pause", {"name": "notes.sweep"}, 403, {"agents": ["refunds"]}), ("/edit", {"name": "notes.sweep"}, 400, {}),
        ("/edit", {"name": "notes.told", "cron": "@hourly"}, 409, {}),
        ("/backfill", {"name": "notes.sweep", "begin": "2026-01-01T00:00Z", "end": "2026-03-01T00:00Z"}, 409, {}),
    ]  # fmt: skip
    said[-1][1]["name"] = "notes.sweep"
    for path, wish, code, who in said[:-1]:
        answer = api.post(f"/schedules{path}", wish, "operator", **who)
        assert answer.status_code == code, (path, wish, answer.text)
        assert answer.json()["detail"]
    assert api.post("/schedules", {**body, "name": "c"}, "requester").status_code == 403


def test_migrate_declares_what_the_agents_declare_and_the_doctor_tells_what_is_overdue(f: Fleet) -> None:
    change(f, "notes", triggers=[on.cron("@daily", name="told")])
    Timetable(f.intake).declare("t1")
    with f.run.db.connection() as connection:
        connection.execute("UPDATE schedules SET next_fire_at = clock_timestamp() - interval '3 min'")
    found = {finding.what: finding for finding in examine(f.settings)}
    assert found["schedules"].state == "wrong" and "notes.told" in found["schedules"].text
