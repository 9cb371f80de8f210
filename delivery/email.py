"""Mail over SMTP: one connection for each letter, and an honest word on whether it went out.

What can be said with certainty is `NotSent`; only a line lost between the final dot and the answer to it is
`PerhapsSent`. The Message-ID is made from the letter's id, so a second attempt is the same message to every reader.
"""

from __future__ import annotations

import contextlib
import re
import smtplib
import ssl
from collections.abc import Iterator
from email.utils import parseaddr
from time import monotonic
from typing import Literal

from twelvefold.errors import DeclarationError
from twelvefold.ports import Letter, NotSent, PerhapsSent, Receipt
from twelvefold.text import one_line

from .mime import ADDRESS, addresses, compose, message_id
from .patience import Smtp, SmtpTls

__all__ = ["SmtpChannel", "Tls", "message_id"]

LATER_S = 60.0
"""Who is told to come later comes no sooner than that: servers that greylist count early tries against us."""
TOGETHER_S = 50.0
"""So long one letter may take; the answer to the final dot may take all that is left of it."""
Tls = Literal["none", "starttls", "implicit"]


class SmtpChannel:
    """A channel of mail through one SMTP server.

    `tls` is never optional: `starttls` fails when the server does not offer it. `timeout` is in seconds, for each
    command; `patience` for all of them together. `domain` stands in our Message-IDs and greetings. A new connection
    serves each letter, so threads may share the channel. Raises DeclarationError for a password that would cross the
    line in clear.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: Tls,
        username: str | None,
        password: str | None,
        sender: str,
        domain: str,
        timeout: float,
        *,
        patience: float = TOGETHER_S,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if username and tls == "none":
            raise DeclarationError("SMTP with a user name needs TLS: set it to `starttls` (587) or `implicit` (465).")
        if not ADDRESS.fullmatch(parseaddr(sender)[1]):
            raise DeclarationError(f"{sender!r} is no sender. Write it like `Refunds <refunds@shop.example>`.")
        self._host, self._port, self._tls = host, port, tls
        self._username, self._password = username, password
        self._sender, self._domain, self._timeout = sender, domain, timeout
        self._patience, self._context = patience, context

    def push(self, letter: Letter) -> Receipt:
        """Send the letter; the receipt's reference is its Message-ID. Raises NotSent or PerhapsSent."""
        message = compose(letter, self._sender, self._domain)
        recipients = addresses(letter.recipient)
        if letter.bounces and not ADDRESS.fullmatch(letter.bounces):
            raise NotSent("The address that the letter bounces to is none.", retry=False)
        with contextlib.closing(self._connect()) as smtp:
            refused = _hand_over(smtp, letter.bounces or parseaddr(self._sender)[1], recipients, message)
            answer = _finish(smtp)
            with contextlib.suppress(OSError):
                smtp.putcmd("quit")  # nobody waits for the farewell: it is known now that the letter went out
        detail = "; ".join([answer, *refused])
        return Receipt(reference=message_id(letter.id, self._domain), detail=detail, refused=tuple(refused))

    def _connect(self) -> Smtp:
        """A connection ready for a letter. Whatever fails here is no fault of the letter, so it may be tried again."""
        smtp: Smtp | None = None
        try:
            smtp = self._open()
            if self._tls == "starttls":
                smtp.starttls(context=self._context or ssl.create_default_context())
            smtp.ehlo_or_helo_if_needed()
            if self._username:
                smtp.login(self._username, self._password or "")
        except (OSError, ValueError) as error:
            if smtp is not None:
                smtp.close()
            raise NotSent(f"{self._host}:{self._port} cannot be used: {_told(error)}", retry=True) from error
        return smtp

    def _open(self) -> Smtp:
        deadline = monotonic() + self._patience
        if self._tls == "implicit":
            context = self._context or ssl.create_default_context()
            return SmtpTls(self._host, self._port, self._domain, self._timeout, deadline, context=context)
        return Smtp(self._host, self._port, self._domain, self._timeout, deadline)


def _hand_over(smtp: Smtp, sender: str, recipients: list[str], message: bytes) -> list[str]:
    """Everything up to the final dot: until that one is sent, no server has taken the letter.

    Returns what was said of recipients refused for good while others were accepted. One refused for now holds the
    letter back for all, since a later attempt could not leave out those who have it already.
    """
    try:
        _expect(250, *smtp.mail(sender))
        refused = list(_refused(smtp, recipients))
        _expect(354, *smtp.docmd("DATA"))
        smtp.send(re.sub(rb"(?m)^\.", b"..", message))
        smtp.hurry()
    except OSError as error:
        raise NotSent(_told(error), retry=True) from error
    return refused


def _refused(smtp: Smtp, recipients: list[str]) -> Iterator[str]:
    refused = 0
    for recipient in recipients:
        code, reply = smtp.rcpt(recipient)
        if code in (250, 251):
            continue
        refused += 1
        if code // 100 != 5 or refused == len(recipients):
            raise _not_sent(code, reply)
        yield f"refused: {recipient} ({_said(code, reply)})"


def _finish(smtp: Smtp) -> str:
    smtp.timeout = TOGETHER_S
    try:
        smtp.send(b".\r\n")
        code, reply = smtp.getreply()
    except OSError as error:
        raise PerhapsSent(f"The line was lost before the answer to the final dot: {_told(error)}") from error
    if code // 100 == 2:
        return _said(code, reply)
    if code // 100 in (4, 5):
        raise _not_sent(code, reply)
    raise PerhapsSent(f"The answer to the final dot makes no sense: {_said(code, reply)}")


def _expect(wanted: int, code: int, reply: bytes) -> None:
    if code != wanted:
        raise _not_sent(code, reply)


def _not_sent(code: int, reply: bytes) -> NotSent:
    return NotSent(_said(code, reply), retry=code // 100 != 5, retry_after=LATER_S if code // 100 == 4 else None)


def _said(code: int, reply: bytes) -> str:
    return one_line(f"{code} {reply.decode('utf-8', 'replace')}")


def _told(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        return _said(error.smtp_code, said if isinstance(said, bytes) else said.encode())
    if isinstance(error, UnicodeError):  # its text may quote a password
        return type(error).__name__
    return one_line(f"{type(error).__name__}: {error}")
