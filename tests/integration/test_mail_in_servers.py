"""Mail over real lines: SMTP and LMTP listeners, and a mailbox on a real IMAP server."""

from __future__ import annotations

import shutil
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Any, Literal

import pytest
from imapclient import IMAPClient
from pydantic import SecretStr

from console.mail_imap import Reader
from console.mail_in import Listener
from tests.fakes.imap_server import PASSWORD, imap_server
from tests.hands import until
from tests.harness import Fleet, fleet
from tests.mails import ANN, TRUSTED, mail
from triggers.mail import Envelope
from twelvefold import Done, Text
from workers.mailroom import Mailroom
from workers.store.database import Database

BOX = "refunds@in.example.com"
IN: dict[str, Any] = {"mail_in_domain": "in.example.com", "mail_authserv": "mx.example.net"}


def done(task: Any) -> Done:
    return Done(outcome=Text(text="ok"))


def room_of(f: Fleet, db: Database | None = None) -> Mailroom:
    return Mailroom(db or f.run.db, f.run.registry, f.settings, f.run.log, lambda *_: None)


@contextmanager
def listening(room: Mailroom, kind: Literal["smtp", "lmtp"]) -> Iterator[int]:
    listener = Listener(room, room.log, kind, "127.0.0.1", 0)
    try:
        yield listener.start()
    finally:
        listener.stop()


def numbered(n: int, text: str = "refund, please", **given: Any) -> bytes:
    return mail(text, TRUSTED, f"Message-ID: <n{n}@mail.example.com>", to=BOX, **given)


def tasks(f: Fleet) -> int:
    return int(f.one("SELECT count(*) FROM agent_tasks"))


def test_a_mail_over_smtp_is_stored_before_it_is_answered_and_only_for_us(fresh_database: Any) -> None:
    with fleet(fresh_database, done, **IN) as f, listening(room_of(f), "smtp") as port:
        with smtplib.SMTP("127.0.0.1", port, timeout=30) as line:
            assert line.sendmail(ANN, [BOX], numbered(1)) == {}
            assert tasks(f) == 1
            assert line.sendmail(ANN, [BOX.upper()], numbered(1)) == {} and tasks(f) == 1, "the same again"
            with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
                line.sendmail(ANN, ["somebody@elsewhere.example"], numbered(2))
            assert refused.value.recipients["somebody@elsewhere.example"][0] == 550, "no open relay"
            with pytest.raises(smtplib.SMTPDataError) as excessive:
                line.sendmail(ANN, [BOX], mail("x", *["X-A: b"] * 600))
            assert excessive.value.smtp_code == 552
            with pytest.raises(smtplib.SMTPSenderRefused) as long:
                line.sendmail(ANN, [BOX], b"x" * 25_000_001)
            assert long.value.smtp_code == 552
            line.rset()
            assert line.sendmail("", [BOX], numbered(3)) == {}
        assert f.one("SELECT reason FROM arrivals ORDER BY id DESC LIMIT 1") == "null_return_path" and tasks(f) == 1


def test_without_the_database_a_sender_is_told_to_come_again(fresh_database: Any) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none", size=1)
    with fleet(fresh_database, done, **IN) as f:
        with listening(room_of(f, away), "smtp") as port, smtplib.SMTP("127.0.0.1", port, timeout=60) as line:
            with pytest.raises(smtplib.SMTPDataError) as later:
                line.sendmail(ANN, [BOX], numbered(1))
            assert later.value.smtp_code == 451
        with listening(room_of(f), "smtp") as port, smtplib.SMTP("127.0.0.1", port, timeout=60) as line:
            assert line.sendmail(ANN, [BOX], numbered(1)) == {} and tasks(f) == 1
    away.close()


def test_over_lmtp_each_recipient_gets_an_answer_of_its_own(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet(fresh_database, done, **IN) as f:
        room = room_of(f)
        other, broken = "agent+x.y@in.example.com", "agent+broken.y@in.example.com"
        take = room.receive

        def receive(raw: bytes, envelope: Envelope) -> Any:
            if envelope.recipient == broken:
                raise OSError("the database is away for this one")
            return take(raw, envelope)

        monkeypatch.setattr(room, "receive", receive)
        with listening(room, "lmtp") as port, smtplib.LMTP("127.0.0.1", port, timeout=20) as line:
            line.ehlo_or_helo_if_needed()
            line.mail(ANN)
            assert [line.rcpt(each)[0] for each in (BOX, broken, other, "x@elsewhere.example")] == [250, 250, 250, 550]
            assert line.docmd("DATA")[0] == 354
            line.send(numbered(1) + b"\r\n.\r\n")
            assert [line.getreply()[0] for _ in range(3)] == [250, 451, 250]
            assert line.noop()[0] == 250, "and no answer more"
        assert tasks(f) == 1


@contextmanager
def mailbox(f: Fleet, port: int) -> Iterator[Reader]:
    settings = f.settings.model_copy(update={
        "imap_host": "127.0.0.1", "imap_port": port, "imap_tls": "none", "imap_username": "ann",
        "imap_password": SecretStr(PASSWORD),
    })  # fmt: skip
    yield Reader(settings, room_of(f), f.run.db, f.run.log, Event(), first_wait=0.05, poll=0.3)


def put(reader: Reader, *raw: bytes) -> None:
    with reader.connected() as client:
        for each in raw:
            client.append("INBOX", each)


def unseen(reader: Reader) -> int:
    with reader.connected() as client:
        client.select_folder("INBOX", readonly=True)
        return len(client.search(["UNSEEN"]))


def test_b136_a_mailbox_is_read_once_whatever_breaks_in_between(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with imap_server() as (port, folder), fleet(fresh_database, done, **IN) as f, mailbox(f, port) as reader:
        put(reader, numbered(1))
        with reader.connected() as client:
            client.select_folder("INBOX")
            client.add_flags([1], [b"\\Seen"])
        put(reader, numbered(2))
        with reader.connected() as client:
            assert reader.read(client) == 1 and tasks(f) == 1, "what somebody has seen before we came stays theirs"
        put(reader, mail("refund", TRUSTED, to=BOX), mail("refund too", TRUSTED, to=BOX))

        with monkeypatch.context() as patched:
            patched.setattr(IMAPClient, "add_flags", _breaks)
            with reader.connected() as client, pytest.raises(ConnectionResetError):
                reader.read(client)  # after the commit, before \Seen
        assert tasks(f) == 2
        with monkeypatch.context() as patched:
            patched.setattr(reader.room, "receive", _breaks)
            with reader.connected() as client, pytest.raises(ConnectionResetError):
                reader.read(client)  # between fetch and commit
        with reader.connected() as client:
            assert reader.read(client) == 1 and reader.read(client) == 0
        assert tasks(f) == 3 and unseen(reader) == 1, "of two without an id in one second both are there"

        for path in folder.iterdir():  # the server gives its UIDs out anew
            if path.name.startswith("dovecot"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        before = f.run.db.rows("SELECT uidvalidity FROM mailboxes")
        f.run.db.rows("UPDATE mailboxes SET uidvalidity = uidvalidity - 1 RETURNING uid")
        with reader.connected() as client:
            assert reader.read(client) == 4
        assert tasks(f) == 4 and before, "what was taken is known by its key; the first one was never taken"
        assert unseen(reader) == 0


def _breaks(*_: Any, **__: Any) -> None:
    raise ConnectionResetError


@pytest.mark.parametrize("idle", [True, False], ids=["told by the server", "polled"])
def test_a_mailbox_is_followed_and_a_lost_line_is_taken_up_again(fresh_database: Any, idle: bool) -> None:
    with imap_server(idle=idle) as (port, _), fleet(fresh_database, done, **IN) as f, mailbox(f, port) as reader:
        with reader.connected() as client:
            assert client.has_capability("IDLE") is idle
        following = replace(reader, poll=600.0 if idle else 0.2)
        thread = Thread(target=following.run)
        thread.start()
        try:
            put(reader, numbered(1))
            until(lambda: tasks(f) == 1, "the first mail")
            with reader.connected() as client:
                assert client.logout()
            put(reader, numbered(2))
            until(lambda: tasks(f) == 2, "the second mail")
        finally:
            following.stopping.set()
            thread.join(30)
        assert not thread.is_alive() and unseen(reader) == 0
