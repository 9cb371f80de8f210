"""Mails for tests, as bytes on the line."""

from __future__ import annotations

from twelvefold.text import MARKER

ANN = "ann@example.com"
TRUSTED = (
    "Authentication-Results: mx.example.net; spf=pass smtp.mailfrom=ann@example.com; dmarc=pass header.from=example.com"
)


def mail(text: str, *headers: str, sender: str = ANN, to: str = "agent@in.example.com") -> bytes:
    """A mail with these headers, the given ones on top; a Subject and a Content-Type unless they are among them."""
    given = "\r\n".join(headers).lower()
    lines = [*headers, f"From: {sender}", f"To: {to}"]
    lines += [] if "subject:" in given else ["Subject: A question"]
    lines += [] if "content-type:" in given else ["Content-Type: text/plain; charset=utf-8"]
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


def reply_to_letter(words: str) -> str:
    """The text of a mail that answers one of our letters, the way most programs quote."""
    return (
        f"{words}\n\nOn Mon, 1 Dec 2026 at 10:00, Fleet <fleet@fleet.example> wrote:\n> {MARKER}\n> reply NO to reject"
    )
