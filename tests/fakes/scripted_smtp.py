"""An SMTP server on the loopback that says what it is told to say, and when: refusals, answers that are held back, and
lines lost at the worst moment.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import BinaryIO, Self

HANG_UP = ""
"""In place of an answer: close the connection without one."""


class Hold:
    """The next answer to a command, held back until it is released."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.taken = False
        self.came = threading.Event()
        """Somebody waits for the answer."""
        self._go = threading.Event()

    def stand(self) -> None:
        """Wait for the release, as the session that has to answer."""
        self.came.set()
        self._go.wait(60)

    def release(self) -> None:
        """Let the answer go."""
        self._go.set()


class ScriptedSmtp:
    """Answers each command by its first word, or the whole line where that is scripted, and keeps the mail it took.

    The text of a mail is answered under the word `.`, the greeting under `connect`. Each script is a list of answers,
    used in turn, the last one for ever; what is not scripted is answered like a polite server. Each connection has a
    thread of its own.
    """

    def __init__(self, script: dict[str, list[str]] | None = None) -> None:
        self.script = {key.upper(): list(answers) for key, answers in (script or {}).items()}
        self.commands: list[str] = []
        self.mails: list[bytes] = []
        """Every text that arrived whole, whatever was answered."""
        self._holds: list[Hold] = []
        self._lock = threading.Lock()
        self._sessions: list[threading.Thread] = []
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
        for hold in self._holds:
            hold.release()
        for thread in (self._thread, *self._sessions):
            thread.join(10)
            assert not thread.is_alive()

    def hold(self, command: str) -> Hold:
        """Hold back the next answer to this command; one hold serves one session."""
        held = Hold(command.upper())
        self._holds.append(held)
        return held

    def idle(self) -> bool:
        """Whether every session has ended."""
        return not any(thread.is_alive() for thread in self._sessions)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sessions = [thread for thread in self._sessions if thread.is_alive()]
            self._sessions.append(threading.Thread(target=self._session, args=(connection,), name="smtp-session"))
            self._sessions[-1].start()

    def _session(self, connection: socket.socket) -> None:
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
                    text = _text(lines)
                    if text is None:
                        return
                    self.mails.append(text)
                    answer = self._answer(".", "250 taken")
                if line.upper() == "QUIT":
                    connection.sendall(answer.encode() + b"\r\n")
                    return

    def _answer(self, line: str, otherwise: str) -> str:
        self._stand(line.split()[0])
        polite = {"EHLO": "250 scripted", "DATA": "354 go on", "QUIT": "221 bye"}
        for key in (line, line.split()[0]):
            if key in self.script:
                answers = self.script[key]
                return answers.pop(0) if len(answers) > 1 else answers[0]
        return otherwise or polite.get(line.split()[0], "250 ok")

    def _stand(self, command: str) -> None:
        with self._lock:
            hold = next((hold for hold in self._holds if hold.command == command and not hold.taken), None)
            if hold is not None:
                hold.taken = True
        if hold is not None:
            hold.stand()


def _text(lines: BinaryIO) -> bytes | None:
    """The text up to the final dot; None when the line is lost before it."""
    text = []
    for line in iter(lines.readline, b".\r\n"):
        if not line:
            return None
        text.append(line)
    return b"".join(text)
