"""An SMTP server on the loopback that says what it is told to say: refusals, and lines lost at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

HANG_UP = ""
"""In place of an answer: close the connection without one."""


class ScriptedSmtp:
    """Answers each command by its first word, or the whole line where that is scripted, and keeps the mail it took.

    The text of a mail is answered under the word `.`, the greeting under `connect`. Each script is a list of answers,
    used in turn, the last one for ever; what is not scripted is answered like a polite server.
    """

    def __init__(self, script: dict[str, list[str]] | None = None) -> None:
        self.script = {key.upper(): list(answers) for key, answers in (script or {}).items()}
        self.commands: list[str] = []
        self.mails: list[bytes] = []
        """Every text that arrived whole, whatever was answered."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="scripted-smtp")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread out of accept
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(10)
            with connection, contextlib.suppress(OSError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            answer = self._answer("CONNECT", "220 scripted")
            while answer != HANG_UP:
                connection.sendall(answer.encode() + b"\r\n")
                line = lines.readline().decode().strip()
                if not line:
                    return
                self.commands.append(line)
                answer = self._answer(line.upper(), "")
                if line.upper() == "DATA" and answer.startswith("354"):
                    connection.sendall(answer.encode() + b"\r\n")
                    self.mails.append(b"".join(iter(lines.readline, b".\r\n")))
                    answer = self._answer(".", "250 taken")
                if line.upper() == "QUIT":
                    connection.sendall(answer.encode() + b"\r\n")
                    return

    def _answer(self, line: str, otherwise: str) -> str:
        polite = {"EHLO": "250 scripted", "DATA": "354 go on", "QUIT": "221 bye"}
        for key in (line, line.split()[0]):
            if key in self.script:
                answers = self.script[key]
                return answers.pop(0) if len(answers) > 1 else answers[0]
        return otherwise or polite.get(line.split()[0], "250 ok")
