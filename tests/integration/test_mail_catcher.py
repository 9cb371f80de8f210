"""The mail catcher takes mail as a real server does, and misbehaves on request."""

from __future__ import annotations

import smtplib
import socket
import threading
import time
from email.message import EmailMessage
from pathlib import Path

import pytest

from console.embedded import MailCatcher, StackError


def letter(subject: str = "Hello") -> EmailMessage:
    """A mail with a subject outside ASCII on request."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@example.org", "bob@example.org", subject
    message.set_content("Dear Bob,\n.\nyours, Änn\n")
    return message


def send(mail: MailCatcher, message: EmailMessage) -> None:
    """Send over real SMTP; raises what smtplib raises."""
    with smtplib.SMTP(mail.host, mail.port, local_hostname="localhost", timeout=10) as client:
        client.send_message(message, to_addrs=["bob@example.org", "copy@example.org"])


def test_a_mail_arrives_whole_with_its_envelope(mail: MailCatcher) -> None:
    send(mail, letter("Grüße"))
    [message] = mail.wait(1)
    assert message["subject"] == "Grüße"
    assert message.get_content() == "Dear Bob,\n.\nyours, Änn\n"
    assert mail.caught[0].sender == "ann@example.org"
    assert mail.caught[0].recipients == ("bob@example.org", "copy@example.org")


def test_mails_are_kept_as_files_and_counted_on_after_a_restart(tmp_path: Path) -> None:
    for number in (1, 2):
        with MailCatcher(tmp_path) as mail:
            send(mail, letter(f"No {number}"))
    files = sorted((tmp_path / "mail").iterdir())
    assert [path.name for path in files] == ["000001.eml", "000002.eml"]
    assert b"Subject: No 2" in files[1].read_bytes()


def test_refused_mail_is_not_kept(mail: MailCatcher) -> None:
    mail.refuse = "451 later"
    with pytest.raises(smtplib.SMTPDataError) as refusal:
        send(mail, letter())
    assert (refusal.value.smtp_code, refusal.value.smtp_error) == (451, b"later")
    assert mail.messages == []
    mail.refuse = None
    send(mail, letter())
    assert len(mail.messages) == 1


def test_a_held_reply_comes_when_it_is_released(mail: MailCatcher) -> None:
    mail.hold()
    sender = threading.Thread(target=send, args=(mail, letter()))
    sender.start()
    mail.wait(1)
    sender.join(0.1)
    assert sender.is_alive()
    mail.release()
    sender.join(10)
    assert not sender.is_alive()


def test_a_line_cut_after_the_mail_leaves_the_sender_in_doubt(mail: MailCatcher) -> None:
    mail.drop_after_data = True
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionResetError)):
        send(mail, letter())
    assert len(mail.messages) == 1
    mail.drop_after_data = False
    send(mail, letter())
    assert len(mail.wait(2)) == 2


def test_waiting_in_vain_says_what_came(mail: MailCatcher) -> None:
    send(mail, letter("Only one"))
    with pytest.raises(TimeoutError, match=r"1 of 2 mails came within 0.05 s: \['Only one'\]"):
        mail.wait(2, timeout=0.05)
    mail.clear()
    assert mail.messages == []


def test_it_stops_at_once_under_clients_that_stay_and_comes_back_at_the_same_port() -> None:
    mail = MailCatcher()
    mail.start()
    mail.hold()
    sender = threading.Thread(target=pytest.raises, args=((OSError, smtplib.SMTPException), send, mail, letter()))
    sender.start()
    mail.wait(1)
    port, began = mail.port, time.monotonic()
    with socket.create_connection((mail.host, port)):
        mail.stop()
    sender.join(10)
    assert time.monotonic() - began < 5
    mail.release()
    with mail:
        assert mail.port == port
        send(mail, letter())


def test_a_taken_port_is_explained(mail: MailCatcher) -> None:
    with pytest.raises(StackError, match=f"cannot listen on port {mail.port}"):
        MailCatcher(port=mail.port).start()
