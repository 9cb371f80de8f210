"""Mail against real servers on the loopback: what goes out, and an honest answer whenever something goes wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delivery.email import SmtpChannel, Tls, message_id
from delivery.log import LogChannel, masked
from delivery.mime import compose
from tests.fakes.certificate import self_signed
from tests.fakes.scripted_smtp import HANG_UP, ScriptedSmtp
from twelvefold.errors import DeclarationError
from twelvefold.ports import Channel, Letter, NotSent, PerhapsSent
from twelvefold.text import clean

DOMAIN = "mail.example.com"
LETTER = Letter(
    id="dlv_01J9ZK",
    channel="email",
    recipient="ann@example.com",
    subject="Please approve the refund",
    text="Dear Ann,\n\n.a line with a dot\nGrüße\n",
    created_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)
TWO = replace(LETTER, recipient="ann@example.com, Ben <ben@example.com>")
ID = "<e4kh2cgft3iis4ayjgjwetuk@mail.example.com>"


def content(envelope: Envelope) -> bytes:
    assert isinstance(envelope.content, bytes)
    return envelope.content


def read(raw: bytes) -> EmailMessage:
    message = message_from_bytes(raw, policy=default)
    assert isinstance(message, EmailMessage)
    return message


def text_of(message: EmailMessage) -> str:
    return str(message.get_content()).replace("\r\n", "\n")


class Mailbox:
    """Keeps every envelope that the real server takes."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        self.envelopes.append(envelope)
        return "250 taken as 17"

    @property
    def messages(self) -> list[EmailMessage]:
        return [read(content(each)) for each in self.envelopes]


@contextmanager
def server(ssl_context: ssl.SSLContext | None = None, **options: Any) -> Iterator[tuple[Mailbox, int]]:
    """A real server in a thread; its own controller would need to know a free port beforehand."""
    mailbox = Mailbox()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="smtp")
    thread.start()

    def protocol() -> SMTP:
        return SMTP(mailbox, hostname="localhost", loop=loop, **options)

    async def ended() -> None:
        listening.close()
        sessions = asyncio.all_tasks() - {asyncio.current_task()}
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    starting = loop.create_server(protocol, "127.0.0.1", 0, ssl=ssl_context)
    listening = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
    try:
        yield mailbox, listening.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(ended(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def channel(port: int, tls: Tls = "none", host: str = "127.0.0.1", **more: Any) -> SmtpChannel:
    who = {"username": None, "password": None} | more
    return SmtpChannel(
        host=host, port=port, tls=tls, sender="Refunds <refunds@shop.example>", domain=DOMAIN, timeout=10, **who
    )


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context, and that of a client who trusts it."""
    certificate, key = self_signed()
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_text(certificate)
    (folder / "key.pem").write_text(key)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return theirs, ssl.create_default_context(cadata=certificate)


def test_a_letter_goes_out_whole() -> None:
    with server() as (mailbox, port):
        receipt = channel(port).push(LETTER)
    assert receipt.reference == ID
    assert receipt.detail == "250 taken as 17"
    (envelope,), (message,) = mailbox.envelopes, mailbox.messages
    assert (envelope.mail_from, envelope.rcpt_tos) == ("refunds@shop.example", ["ann@example.com"])
    assert text_of(message) == LETTER.text
    assert message["From"] == "Refunds <refunds@shop.example>"
    assert message["To"] == "ann@example.com"
    assert message["Subject"] == LETTER.subject
    assert message["Message-ID"] == ID
    assert message["Date"].datetime == LETTER.created_at
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["X-Auto-Response-Suppress"] == "All"
    assert content(envelope).isascii(), "no server has to know 8BITMIME"


def test_the_channel_is_a_channel() -> None:
    channels: list[Channel] = [channel(25), LogChannel(print)]
    assert len(channels) == 2


def test_the_message_id_is_the_same_at_every_attempt() -> None:
    assert message_id("dlv_01J9ZK", DOMAIN) == ID
    assert compose(LETTER, "a@b.example", DOMAIN) == compose(LETTER, "a@b.example", DOMAIN)


def test_a_second_mail_continues_the_conversation() -> None:
    earlier = tuple(f"<{n}@example.com>" for n in range(30))
    long = "<" + "x" * 300 + "@example.com>"
    with server() as (mailbox, port):
        channel(port).push(replace(LETTER, in_reply_to=long, references=(*earlier, "no id", "<é@x>")))
    (message,) = mailbox.messages
    assert message["In-Reply-To"] == long
    chain = message["References"].split()
    assert chain == ["<0@example.com>", *(f"<{n}@example.com>" for n in range(12, 30)), long]
    assert len(chain) == 20


def test_other_headers_go_along_but_never_in_place_of_ours() -> None:
    reply_to = {"Reply-To": "agent+r7k2m9.pnz7@in.example.com"}
    assert read(compose(replace(LETTER, headers=reply_to), "a@b.example", DOMAIN))["Reply-To"] == reply_to["Reply-To"]
    for name in ("Subject", "bcc", "Content-Type", "Auto-Submitted", "Resent-To", "X Y", "", "Ünicode", "X:"):
        with pytest.raises(NotSent) as error:
            compose(replace(LETTER, headers={name: "x"}), "a@b.example", DOMAIN)
        assert not error.value.retry


def test_a_line_end_in_any_header_is_refused() -> None:
    evil = "x\r\nBcc: evil@example.com"
    letters = [replace(LETTER, subject=evil), replace(LETTER, recipient=evil), replace(LETTER, in_reply_to=evil)]
    letters += [replace(LETTER, references=("<a@b>", evil)), replace(LETTER, subject="a\nb")]
    letters += [replace(LETTER, headers={"X-Run": evil}), replace(LETTER, headers={evil: "x"})]
    with ScriptedSmtp() as smtp:
        for letter in letters:
            with pytest.raises(NotSent, match="line end") as error:
                channel(smtp.port).push(letter)
            assert not error.value.retry
    assert smtp.commands == []


@pytest.mark.parametrize("recipient", ["", "ann", "ann@", "@x.example", "a b@x.example", "ann@exämple.com", "a@x, b"])
def test_a_recipient_that_is_no_address_is_refused(recipient: str) -> None:
    with pytest.raises(NotSent) as error:
        channel(1).push(replace(LETTER, recipient=recipient))
    assert not error.value.retry


@settings(deadline=None)
@given(st.text(), st.text(), st.text())
@example("", "", "0000\xa1,\xa1;\xa1,\xa1")  # makes the standard library write a header line that is none
@example("=?utf-8?Q?hello=0ABcc=3A_evil=40bad.example?=", "", "x")
def test_any_letter_is_either_refused_for_good_or_written_whole(subject: str, text: str, value: str) -> None:
    for headers in ({"X-Run": value}, {"X-Run": value, "Reply-To": value}):
        try:
            message = read(compose(replace(LETTER, subject=subject, text=text, headers=headers), "a@b.example", DOMAIN))
        except NotSent as error:
            assert not error.retry
            continue
        assert message.keys().count("Subject") == 1
        assert "Bcc" not in message
        assert message["Message-ID"] == ID
        assert text_of(message).splitlines() == (clean(text).splitlines() or [""])


def test_starttls_is_used_when_asked_for(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    theirs, ours = tls
    with server(tls_context=theirs, require_starttls=True) as (mailbox, port):
        channel(port, "starttls", "localhost", context=ours).push(LETTER)
    assert len(mailbox.envelopes) == 1


def test_starttls_is_required_not_hoped_for() -> None:
    with ScriptedSmtp() as smtp, pytest.raises(NotSent, match="STARTTLS") as error:
        channel(smtp.port, "starttls").push(LETTER)
    assert error.value.retry
    assert [line.split()[0] for line in smtp.commands] == ["ehlo"], "not a word of the letter in clear"


def test_implicit_tls(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    theirs, ours = tls
    with server(ssl_context=theirs) as (mailbox, port):
        channel(port, "implicit", "localhost", context=ours).push(LETTER)
    assert len(mailbox.envelopes) == 1


@pytest.mark.parametrize("kind", ["starttls", "implicit"])
def test_a_certificate_that_is_not_trusted_is_refused(kind: Tls, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    options = {"tls_context" if kind == "starttls" else "ssl_context": tls[0]}
    with server(**options) as (mailbox, port), pytest.raises(NotSent, match="CERTIFICATE_VERIFY_FAILED") as error:
        channel(port, kind, "localhost").push(LETTER)
    assert error.value.retry
    assert mailbox.envelopes == []


def test_login(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    theirs, ours = tls

    def knows(server: Any, session: Any, envelope: Any, mechanism: str, who: Any) -> AuthResult:
        return AuthResult(success=who.password == b"right", handled=False)

    with server(tls_context=theirs, authenticator=knows, auth_required=True) as (mailbox, port):
        channel(port, "starttls", "localhost", context=ours, username="u", password="right").push(LETTER)
        with pytest.raises(NotSent, match="535") as error:
            channel(port, "starttls", "localhost", context=ours, username="u", password="wr0ng").push(LETTER)
    assert error.value.retry, "the letter is not at fault, and an operator can mend the password"
    assert "wr0ng" not in error.value.reason
    assert len(mailbox.envelopes) == 1


def test_a_password_never_crosses_the_line_in_clear() -> None:
    with pytest.raises(DeclarationError, match="TLS"):
        channel(25, username="u", password="p")


def test_a_sender_that_is_no_address_cannot_be_declared() -> None:
    with pytest.raises(DeclarationError, match="sender"):
        SmtpChannel("localhost", 25, "none", None, None, "Refunds", DOMAIN, 10)


@pytest.mark.parametrize("step", ["connect", "ehlo", "mail", "rcpt", "data", "."])
@pytest.mark.parametrize(("code", "retry"), [("451", True), ("421", True), ("550", False)])
def test_a_refusal_is_certain_and_its_code_says_whether_to_try_again(step: str, code: str, retry: bool) -> None:
    script = {step: [f"{code} not today"]} | ({"helo": [f"{code} not today"]} if step == "ehlo" else {})
    with ScriptedSmtp(script) as smtp, pytest.raises(NotSent, match="not today") as error:
        channel(smtp.port).push(LETTER)
    assert error.value.retry is (retry or step in ("connect", "ehlo")), "before the letter, the letter is not at fault"
    later = code.startswith("4") and step not in ("connect", "ehlo")
    assert error.value.retry_after == (60 if later else None), "who is told to come later comes no sooner than that"


def test_a_server_that_was_busy_takes_the_same_letter_later() -> None:
    with ScriptedSmtp({".": ["451 busy", "250 taken"]}) as smtp:
        with pytest.raises(NotSent):
            channel(smtp.port).push(LETTER)
        assert channel(smtp.port).push(LETTER).detail == "250 taken"
    assert smtp.mails[0] == smtp.mails[1]


@pytest.mark.parametrize("step", ["connect", "ehlo", "mail", "rcpt", "data"])
def test_a_line_lost_before_the_text_means_not_sent(step: str) -> None:
    with ScriptedSmtp({step: [HANG_UP]}) as smtp, pytest.raises(NotSent) as error:
        channel(smtp.port).push(LETTER)
    assert error.value.retry


@pytest.mark.parametrize("answer", [HANG_UP, "what?", "100 hm", "354 go on"])
def test_a_line_lost_after_the_final_dot_means_perhaps_and_the_next_attempt_is_the_same_message(answer: str) -> None:
    with ScriptedSmtp({".": [answer, "250 taken"]}) as smtp:
        with pytest.raises(PerhapsSent):
            channel(smtp.port).push(LETTER)
        assert channel(smtp.port).push(LETTER).reference == ID
    first, second = smtp.mails
    assert first == second
    assert ID.encode() in first


def test_a_line_lost_at_the_end_of_the_session_changes_nothing() -> None:
    with ScriptedSmtp({"quit": [HANG_UP]}) as smtp:
        assert channel(smtp.port).push(LETTER).detail == "250 taken"
    assert smtp.commands[-1] == "quit"


@pytest.mark.parametrize(
    ("step", "error"), [("connect", NotSent), ("mail", NotSent), ("data", NotSent), (".", PerhapsSent)]
)
def test_a_server_that_takes_its_time_is_left_before_others_take_the_letter_for_lost(
    step: str, error: type[Exception]
) -> None:
    with ScriptedSmtp() as smtp:
        held, begun = smtp.hold(step), monotonic()
        with pytest.raises(error):
            channel(smtp.port, patience=0.3).push(LETTER)
        assert 0.2 < monotonic() - begun < 9, "each command alone would have had ten seconds"
        held.release()


def test_nobody_waits_for_the_farewell_of_a_server_that_has_taken_the_letter() -> None:
    with ScriptedSmtp() as smtp:
        held, begun = smtp.hold("quit"), monotonic()
        assert channel(smtp.port).push(LETTER).detail == "250 taken"
        assert monotonic() - begun < 9, "it waited for its timeout"
        held.release()


def test_a_server_that_is_not_there_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NotSent, match="ConnectionRefused") as error:
        channel(port).push(LETTER)
    assert error.value.retry


def test_one_of_two_recipients_refused_for_good_is_told() -> None:
    with ScriptedSmtp({"RCPT TO:<ben@example.com>": ["550 no such user"]}) as smtp:
        receipt = channel(smtp.port).push(TWO)
    assert receipt.detail == "250 taken; refused: ben@example.com (550 no such user)"
    assert len(smtp.mails) == 1


def test_one_of_two_recipients_refused_for_now_holds_the_letter_back() -> None:
    with ScriptedSmtp({"RCPT TO:<ben@example.com>": ["451 later", "250 ok"]}) as smtp:
        with pytest.raises(NotSent, match="later") as error:
            channel(smtp.port).push(TWO)
        assert error.value.retry
        assert smtp.mails == []
        channel(smtp.port).push(TWO)
    assert len(smtp.mails) == 1


def test_all_recipients_refused_for_good_means_never() -> None:
    with ScriptedSmtp({"rcpt": ["550 no such user"]}) as smtp, pytest.raises(NotSent) as error:
        channel(smtp.port).push(TWO)
    assert not error.value.retry


def test_a_text_of_dots_cannot_end_itself() -> None:
    letter = replace(LETTER, text="before\n.\nMAIL FROM:<evil@example.com>\n..\n.")
    with server() as (mailbox, port):
        channel(port).push(letter)
    assert len(mailbox.envelopes) == 1
    assert text_of(mailbox.messages[0]) == letter.text + "\n"


def test_the_log_channel_writes_one_line_without_content() -> None:
    lines: list[str] = []
    letter = replace(LETTER, id="dlv\n1", subject="secret", text="secret")
    assert LogChannel(lines.append).push(letter).reference == letter.id
    assert lines == ["letter dlv 1 channel=email to=a***@example.com"]


def test_recipients_are_masked() -> None:
    assert masked("ann@example.com") == "a***@example.com"
    assert masked("#refunds") == "#***"
    assert masked("a@x.example, ben@y.example") == "a***@y.example"
    assert masked("") == "***"
