"""Connections to a mail server that have so long for everything together.

A relay holds a letter for a minute; then others take it for lost. A server that answers each command just in time must
not outlast that, or its letter would be called `unknown` and the next one of the conversation would overtake it.
"""

from __future__ import annotations

import smtplib
from time import monotonic
from typing import Any


class Smtp(smtplib.SMTP):
    """Each command and each answer may take `timeout` seconds, at most what is left until `deadline` (monotonic)."""

    def __init__(self, host: str, port: int, name: str, timeout: float, deadline: float, **more: Any) -> None:
        self._deadline = deadline
        super().__init__(host, port, name, timeout=timeout, **more)

    def hurry(self) -> None:
        """Give the socket what is left. Raises TimeoutError when nothing is."""
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the server took too long for all of it together")
        if self.sock is not None:
            self.sock.settimeout(min(self.timeout, left))

    def send(self, s: Any) -> None:
        """Send, in time."""
        self.hurry()
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """The next answer, in time."""
        self.hurry()
        return super().getreply()


class SmtpTls(Smtp, smtplib.SMTP_SSL):
    """The same with TLS from the first byte on; `context` goes along."""
