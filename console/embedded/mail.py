"""An SMTP server that delivers nothing: it keeps every mail for the demo to show and for tests to read."""

from __future__ import annotations

import asyncio
import email
import email.policy
import importlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

from console.embedded.child import StackError, free_port, port_is_free


@dataclass(frozen=True, slots=True)
class Caught:
    """One mail: the envelope, the exact bytes as they came, and the message parsed, with line ends as in Python."""

    sender: str
    recipients: tuple[str, ...]
    raw: bytes
    message: EmailMessage


class MailCatcher:
    """An SMTP server on 127.0.0.1, or another `host`, in a thread of this process, without TLS and without login.

    `port` is chosen at the first start and stays. With `home`, every mail is also written to `home/mail/000001.eml`
    and so on.

    For tests, all to be set or called at any time:
        refuse: a reply such as `"451 later"` that answers the next mails instead of taking them; None takes them.
        drop_after_data: True takes a mail and cuts the line instead of replying, so that the sender cannot know.
        hold(), release(): take mails, but keep back the reply until released.
    """

    def __init__(self, home: Path | None = None, *, port: int | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self.refuse: str | None = None
        self.drop_after_data = False
        self._folder = home / "mail" if home else None
        self._port = port
        self._caught: list[Caught] = []
        self._changed = threading.Condition()
        self._held = False
        self._replies: list[asyncio.Future[None]] = []
        self._sessions: set[Any] = set()
        self._controller: Any = None

    @property
    def port(self) -> int:
        """The TCP port; StackError before the first start."""
        if self._port is None:
            raise StackError("The mail catcher was not started. Call start() first.")
        return self._port

    @property
    def caught(self) -> list[Caught]:
        """All mails so far with their envelopes, oldest first."""
        with self._changed:
            return list(self._caught)

    @property
    def messages(self) -> list[EmailMessage]:
        """All mails so far, parsed, oldest first."""
        return [one.message for one in self.caught]

    def wait(self, count: int = 1, timeout: float = 10.0) -> list[EmailMessage]:
        """Wait at most `timeout` seconds until `count` mails came in all; returns them. TimeoutError says what came."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._caught) >= count, timeout):
                subjects = [one.message["subject"] for one in self._caught]
                raise TimeoutError(f"{len(subjects)} of {count} mails came within {timeout:g} s: {subjects}")
            return [one.message for one in self._caught]

    def clear(self) -> None:
        """Forget the mails in memory."""
        with self._changed:
            self._caught.clear()

    def hold(self) -> None:
        """From now on take mails but do not reply."""
        self._held = True

    def release(self) -> None:
        """Send the replies kept back, and reply at once again."""
        self._held = False
        if self._controller is not None:
            self._controller.loop.call_soon_threadsafe(self._reply)

    def start(self) -> None:
        """Listen; returns when a connection was answered. Nothing happens when it already listens."""
        if self._controller is not None:
            return
        controller_of = _controller_class(self._sessions)
        port = self._port or free_port()
        if not port_is_free(port):
            raise StackError(f"The mail catcher cannot listen on port {port}: it is taken. Name another one.")
        controller = controller_of(
            _Handler(self._take), hostname=self.host, port=port, ready_timeout=30.0, server_hostname="localhost"
        )
        controller.start()
        self._controller, self._port = controller, port

    def stop(self) -> None:
        """Cut all connections and listen no longer; the mails stay in memory."""
        if self._controller is not None:
            asyncio.run_coroutine_threadsafe(self._wind_down(), self._controller.loop).result(10)
            self._controller.stop()
            self._controller = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _take(self, server: Any, envelope: Any) -> str:
        if self.refuse:
            return self.refuse
        self._keep(envelope)
        if self.drop_after_data:
            server.transport.abort()
            await asyncio.Event().wait()  # aiosmtpd cancels us when it notices that the line is cut
        if self._held:
            self._replies.append(asyncio.get_running_loop().create_future())
            await self._replies[-1]
        return "250 OK"

    def _keep(self, envelope: Any) -> None:
        raw = bytes(envelope.original_content)
        message = email.message_from_bytes(raw.replace(b"\r\n", b"\n"), policy=email.policy.default)
        with self._changed:
            self._caught.append(Caught(envelope.mail_from, tuple(envelope.rcpt_tos), raw, message))
            if self._folder:
                self._folder.mkdir(parents=True, exist_ok=True)
                number = max((int(path.stem) for path in self._folder.glob("[0-9]*.eml")), default=0) + 1
                (self._folder / f"{number:06}.eml").write_bytes(raw)
            self._changed.notify_all()

    def _reply(self) -> None:
        while self._replies:
            waiting = self._replies.pop()
            if not waiting.done():
                waiting.set_result(None)

    async def _wind_down(self) -> None:
        """Cut all connections, then stop listening; the other way round asyncio leaks one that it is accepting."""
        while self._sessions or len(asyncio.all_tasks()) > 1:
            for session in list(self._sessions):
                session.transport.abort()
            await asyncio.sleep(0.001)
        self._controller.server.close()


class _Handler:
    """What aiosmtpd calls; a plain class of its own, since aiosmtpd reads every attribute of its handler."""

    def __init__(self, take: Callable[[Any, Any], Awaitable[str]]) -> None:
        self._take = take

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """A mail is complete; returns the reply."""
        return await self._take(server, envelope)


def _controller_class(sessions: set[Any]) -> Any:
    """aiosmtpd's controller, except that open connections stand in `sessions` and end with their clients."""
    try:
        controller: Any = importlib.import_module("aiosmtpd.controller").Controller
        smtp: Any = importlib.import_module("aiosmtpd.smtp").SMTP
    except ImportError:
        raise StackError(
            "The mail catcher needs the package aiosmtpd, which is not installed.\n"
            "`make install` installs it (group `embedded`). Or set SMTP_HOST to a mail server of your own."
        ) from None

    class Session(smtp):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            sessions.add(self)

        def connection_lost(self, error: Exception | None) -> None:
            sessions.discard(self)
            super().connection_lost(error)

        def eof_received(self) -> bool:
            super().eof_received()
            return False  # asyncio then closes the connection; aiosmtpd would keep it half open and forget it

    class Controller(controller):
        def factory(self) -> Any:
            return Session(self.handler, **self.SMTP_kwargs)

    return Controller
