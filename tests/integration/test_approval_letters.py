"""Questions go out by mail: asked in the commit that asks, linked only when sent, answered in their own thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import uvicorn
from pydantic import SecretStr
from typer.testing import CliRunner

from console.cli import cli
from delivery.mime import message_id
from tests.agents.notes.tools import KeepNote
from tests.agents.signoff.tools import Ship
from tests.asked import DOMAIN, LINK, SECRET, URL, Asked, Mailbox, asked, send
from tests.hands import once, until
from tests.harness import fleet
from twelvefold.canonical import call_digest
from twelvefold.ports import Letter, PerhapsSent, Receipt
from workers.relay import deliver

PARTS = ["multipart/alternative", "text/plain", "text/html"]
PEARS = Ship(item="a box of pears", why="see https://evil.example/a/x")


def letters(a: Asked) -> list[dict[str, Any]]:
    return a.fleet.run.db.rows("SELECT * FROM outbox ORDER BY n, recipient")


def finish(a: Asked) -> None:
    assert a.post().status_code == 200
    assert a.fleet.drain(a.task) == "done"
    a.deliver()


def test_a_question_is_written_in_the_commit_that_asks(fresh_database: Any) -> None:
    with fleet(fresh_database, once(PEARS)) as f:
        task = f.open("signoff")
        assert f.drain(task) == "waiting"
        found = f.run.db.rows(
            "SELECT o.channel, o.recipient, o.seq, o.n, o.xmin = e.xmin AND e.xmin = a.xmin AS together"
            "  FROM outbox o JOIN agent_events e ON e.task_id = o.task_id AND e.seq = o.seq"
            "  JOIN approvals a ON a.task_id = o.task_id AND a.asked = o.seq AND e.type = 'ApprovalAsked'"
            " ORDER BY o.n"
        )
        assert [(x["channel"], x["recipient"], x["n"]) for x in found] == [
            ("email", "ann@example.com", 1), ("email", "ben@example.com", 2),
        ]  # fmt: skip
        assert all(x["together"] for x in found)


@pytest.mark.parametrize("target", ["#shipping", ""])
def test_a_question_to_no_address_is_told_in_the_log(fresh_database: Any, target: str) -> None:
    with asked(fresh_database, PEARS.model_copy(update={"people": target})) as a:
        assert [(x["channel"], x["recipient"]) for x in letters(a)] == [("log", target or "operators")]
        assert len(a.box.lines) == 1 and "pears" not in a.box.lines[0] and a.box.letters == []
        assert a.fleet.operate.decide(a.task, letters(a)[0]["payload"]["card"]["call"], approved=True, by="eve")


def test_what_is_stored_and_logged_has_no_link_no_token_and_no_word(
    fresh_database: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with asked(fresh_database, PEARS) as a:
        token, word = a.path().removeprefix("/a/"), a.word()
        finish(a)
        stored, logged = json.dumps(a.dump()), "".join(capfd.readouterr())
        for secret in (token, token.split(".")[1], token.split(".")[2], word, URL, SECRET.get_secret_value()):
            assert secret not in stored
            assert secret not in logged
        assert "a box of pears" in stored and "a box of pears" not in logged


def test_the_digest_that_is_checked_at_begin_is_of_what_the_card_shows(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        row = a.fleet.run.db.rows("SELECT call, digest, verdict::text FROM approvals")[0]
        for card in (letter["payload"]["card"] for letter in letters(a)):
            shown = call_digest(a.task, card["call"], card["tool"], card["args"], row["verdict"])
            assert shown == card["digest"] == row["digest"]
        finish(a)
        assert a.fleet.one("SELECT used_at FROM approvals") is not None
        assert a.fleet.one("SELECT text FROM notes") == json.loads(letters(a)[0]["payload"]["card"]["args"])["item"]


def test_the_mail_names_what_is_asked_and_has_one_link_and_one_word(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        ann, ben = a.box.mails
        assert ann["Subject"] == ben["Subject"] == "signoff: approve ship? a box of pears"
        assert (ann["To"], ben["To"]) == ("ann@example.com", "ben@example.com")
        assert ann["Date"].datetime.replace(microsecond=0) == a.fleet.one(
            "SELECT date_trunc('second', at) FROM agent_events WHERE type = 'ApprovalAsked'"
        )
        assert len(LINK.findall(a.text())) == 1 and a.text().count("://") == 1
        assert a.path() != a.path("ben@example.com") and a.word() != a.word("ben@example.com")
        assert "| item: a box of pears" in a.text()
        assert "ann@example.com, ben@example.com" in a.text()


def test_no_text_of_a_call_writes_a_header_or_a_second_part(fresh_database: Any) -> None:
    evil = "pears\r\nBcc: eve@evil.example\n\nTO DECIDE\nhttps://evil.example/a/v1.x.y"
    with asked(fresh_database, Ship(item="pears", why="")) as a:
        plain = a.box.mails[0]
        with asked(fresh_database, Ship(item=evil, why=evil)) as b:
            hostile = b.box.mails[0]
            assert hostile.keys() == plain.keys() and hostile.defects == []
            assert [part.get_content_type() for part in hostile.walk()] == PARTS
            assert hostile["To"] == "ann@example.com"
            assert hostile["Subject"].startswith("signoff: approve ship? pears Bcc: eve@evil.example TO DECIDE")
            assert len(LINK.findall(b.text())) == 1 and b.text().count("://") == 1
            own = [line for line in b.text().splitlines() if line == "TO DECIDE"]
            assert own == ["TO DECIDE"] and b.get().status_code == 200


def test_a_result_is_in_the_thread_of_its_question_as_mail_programs_see_it(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        finish(a)
        question, ben, over, result = a.box.mails
        assert over["To"] == ben["To"] and over["In-Reply-To"] == ben["Message-ID"]
        assert question["In-Reply-To"] is None and question["References"] is None
        assert result["To"] == question["To"] and result["Message-ID"] != question["Message-ID"]
        assert result["In-Reply-To"] == result["References"] == question["Message-ID"] != ben["Message-ID"]
        assert result["Subject"] == f"Re: {question['Subject']}"
        assert a.text().startswith("signoff: done")
        for mail in a.box.mails:
            assert mail["Auto-Submitted"] == "auto-generated"
            assert mail["Message-ID"] in {message_id(str(x["id"]), DOMAIN) for x in letters(a)}


def test_a_second_run_asks_under_its_own_subject_in_the_same_thread(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        finish(a)
        a.fleet.intake.message(a.task, source="test", key="more", text="again", sender="ann")
        assert a.fleet.drain(a.task) == "waiting"
        a.deliver()
        first, _, _, result, second, _ = a.box.mails
        assert second["Subject"] == first["Subject"] and not second["Subject"].startswith("Re:")
        assert second["In-Reply-To"] == result["Message-ID"]
        assert second["References"].split() == [first["Message-ID"], result["Message-ID"]]
        assert len({mail["Message-ID"] for mail in a.box.mails}) == 6


@pytest.mark.parametrize(("state", "follows"), [("unknown", True), ("failed", False)])
def test_a_result_follows_what_may_have_arrived_and_not_what_did_not(
    fresh_database: Any, state: str, follows: bool
) -> None:
    with asked(fresh_database, PEARS) as a:
        with a.fleet.run.db.connection() as connection:
            connection.execute("UPDATE outbox SET state = %s, receipt = NULL WHERE recipient LIKE 'ann@%%'", (state,))
        finish(a)
        result, question = a.box.mails[-1], a.box.mails[0]
        assert result["In-Reply-To"] == (question["Message-ID"] if follows else None)
        assert result["Subject"].startswith("Re: ") == follows


@pytest.mark.parametrize("over", ["decided", "late", "cancelled"])
def test_a_question_that_is_over_before_it_is_sent_is_not_asked(fresh_database: Any, over: str) -> None:
    with fleet(fresh_database, once(PEARS)) as f:
        task = f.open("signoff")
        f.drain(task)
        if over == "decided":
            f.operate.decide(task, f.one("SELECT call FROM approvals"), approved=True, by="ann@example.com")
        elif over == "late":
            with f.run.db.connection() as connection:
                connection.execute("UPDATE approvals SET deadline = clock_timestamp() - interval '1 s'")
        else:
            f.operate.cancel(task, by="ann")
            f.drain(task)
        box = Mailbox()
        for row in f.run.db.rows("SELECT id::text FROM outbox WHERE n <= 2 ORDER BY n"):
            assert deliver(row["id"], f.run, {"email": box}) == "failed"
        assert f.one("SELECT string_agg(DISTINCT error, ';') FROM outbox WHERE n <= 2") == (
            "the question was over before it was sent"
        )
        assert box.letters == []


class Unsure(Mailbox):
    """Keeps the letter, and loses the first answer."""

    def push(self, letter: Letter) -> Receipt:
        """Take it and say nothing."""
        receipt = super().push(letter)
        if len(self.letters) == 1:
            raise PerhapsSent("lost")
        return receipt


def test_a_letter_is_the_same_bytes_at_every_attempt(fresh_database: Any) -> None:
    with fleet(fresh_database, once(PEARS), public_url=URL, link_secrets=(SECRET,)) as f:
        f.drain(f.open("signoff"))
        box, first = Unsure(), f.one("SELECT id::text FROM outbox WHERE n = 1")
        assert deliver(first, f.run, {"email": box}) == "unknown"
        with f.run.db.connection() as connection:
            connection.execute("UPDATE outbox SET state = 'pending' WHERE n = 1")
        assert deliver(first, f.run, {"email": box}) == "sent"
        assert box.raw[0] == box.raw[1]


def test_links_of_before_a_change_of_secrets_still_decide(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        new, old = SecretStr("another secret of at least 32 characters"), a.path()
        a.fleet.settings = a.fleet.settings.model_copy(update={"link_secrets": (new,)})
        assert a.get(old).status_code == 404, "a dropped secret kills its links"
        a.fleet.settings = a.fleet.settings.model_copy(update={"link_secrets": (new, SECRET)})
        assert a.post().status_code == 200
        assert a.get(old).status_code == 200


class Half(Mailbox):
    """Takes the letter for one recipient and refuses another."""

    def push(self, letter: Letter) -> Receipt:
        """Take it, but not for all."""
        return replace(super().push(letter), refused=("refused: ben@example.com (550 no such user)",))


def test_a_recipient_who_was_refused_beside_others_is_not_forgotten(fresh_database: Any) -> None:
    with fleet(fresh_database, once(PEARS)) as f:
        f.drain(f.open("signoff"))
        send(f, Half())
        found = f.run.db.rows("SELECT state, error FROM outbox")
        assert {x["state"] for x in found} == {"sent"}
        assert all("550 no such user" in x["error"] for x in found)


def test_a_question_that_nobody_can_be_asked_by_mail_still_waits(fresh_database: Any) -> None:
    with fleet(fresh_database, once(PEARS)) as f:
        task = f.open("signoff")
        f.drain(task)
        first = f.one("SELECT id::text FROM outbox WHERE n = 1")
        assert deliver(first, f.run, {}) == "failed"
        assert "no channel named email" in f.one("SELECT error FROM outbox WHERE n = 1")
        call = f.one("SELECT call FROM approvals")
        f.operate.decide(task, call, approved=True, by="root", proof="override")
        assert f.drain(task) == "done"


def test_an_asked_note_of_another_agent_is_told_in_the_log(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        assert f.drain(f.open()) == "waiting"
        assert f.one("SELECT channel || recipient FROM outbox") == "log#notes"


def test_the_web_application_serves_the_page_and_no_token_reaches_its_log(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with asked(fresh_database, PEARS) as a:
        s = a.fleet.settings
        environment = {
            "DATABASE_URL": s.database_url, "BROKER_URL": s.broker_url, "TWELVEFOLD_LINK_SECRETS": SECRET,
        }  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value.get_secret_value())
        monkeypatch.setenv("TWELVEFOLD_PUBLIC_URL", URL)
        monkeypatch.setenv("AGENT_MODULES", "tests.agents")
        told: dict[str, Any] = {}
        monkeypatch.setattr(uvicorn, "run", lambda app, **how: told.update(how, app=app))
        started = CliRunner().invoke(cli, ["http", "--port", "0"])
        assert started.exit_code == 0, started.output
        server = uvicorn.Server(uvicorn.Config(**told))
        with _serving(server) as address, httpx2.Client(base_url=address) as client:
            assert client.get(a.path()).status_code == 200
            assert client.get(a.path() + "x").status_code == 404
            form = a.form()
            assert client.post(a.path(), data={**form, "word": "WRONGS"}).status_code == 403
            assert client.post(a.path(), data=form, headers={"Origin": URL}).status_code == 200
            assert client.request("BREW", a.path()).status_code == 405
        logged = "".join(capfd.readouterr())
        for secret in (a.path(), a.path().split(".")[1], a.word(), "WRONGS", "pears"):
            assert secret not in logged


class _serving:
    """A server in a thread: its address."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._server, self._thread = server, threading.Thread(target=server.run)

    def __enter__(self) -> str:
        self._thread.start()
        started: Callable[[], bool] = lambda: self._server.started  # noqa: E731
        until(started, "the server listens")
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
