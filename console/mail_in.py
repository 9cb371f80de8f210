"""The listener that mails are sent to: SMTP or LMTP, in a thread of its own. It answers after the commit.

250: stored. 451: nothing is stored, and the sender's server tries again, so that nothing is lost while the database is
away. 550: nobody here has that address, so this is no open relay. 552: too long, or refused unread. Over LMTP each
recipient gets an answer of its own (RFC 2033); over SMTP the worst of them counts, and a repetition changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Thread
from typing import Any, Literal

from aiosmtpd.lmtp import LMTP
from aiosmtpd.smtp import SMTP

from triggers.mail import Envelope
from triggers.mail_limits import MOST_BYTES, Excessive
from workers.mailroom import Mailroom
from workers.telemetry import Log, kind_of

OK, LATER = "250 2.0.0 Taken", "451 4.3.0 Not now, nothing is stored; try again"
TOO_MUCH, NOBODY = "552 5.3.4 {}", "550 5.1.1 Nobody here has this address"
MOST_RECIPIENTS = 100


@dataclass
class Handler:
    """What a server of aiosmtpd asks about each mail."""

    room: Mailroom
    log: Log
    each: bool
    """Whether every recipient gets an answer of its own."""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        """Whether the recipient is one of ours."""
        if not self.room.knows(address):
            return NOBODY
        if len(envelope.rcpt_tos) >= MOST_RECIPIENTS:
            return "452 4.5.3 Too many recipients"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Store the mail once for each recipient; the answers, in their order."""
        given = [await asyncio.to_thread(self._take, envelope, each) for each in envelope.rcpt_tos]
        # one that is stored is known when it comes again, so a single failure may ask for all of it once more
        return "\r\n".join(given) if self.each else max(given, key=lambda answer: (answer[0] == "4", answer))

    def _take(self, envelope: Any, recipient: str) -> str:
        try:
            self.room.receive(envelope.content, Envelope("smtp", recipient, (envelope.mail_from or "").strip("<>")))
        except Excessive as error:
            self.log.warning("mail_refused", bytes=len(envelope.content))
            return TOO_MUCH.format(error)
        except Exception as error:  # whatever it is, nothing is stored, and the sender still has the mail
            self.log.error("mail_not_taken", error=kind_of(error))
            return LATER
        return OK


class Listener:
    """A listening server in a thread of its own. `port` 0 lets the system choose."""

    def __init__(
        self, room: Mailroom, log: Log, kind: Literal["smtp", "lmtp"], host: str, port: int, name: str = "twelvefold"
    ) -> None:
        self._handler, self._made = Handler(room, log, each=kind == "lmtp"), {"smtp": SMTP, "lmtp": LMTP}[kind]
        self._host, self._port, self._name = host, port, name
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=f"{kind}-listener", daemon=True)

    def start(self) -> int:
        """Listen; the port. Raises OSError where it is taken."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Listen no longer. Who is in the middle of a mail gets no answer, and sends it again."""
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(self._session, self._host, self._port)

    def _session(self) -> SMTP:
        return self._made(
            self._handler, data_size_limit=MOST_BYTES, hostname=self._name, ident="Twelvefold", timeout=300,
            enable_SMTPUTF8=True, loop=self._loop,
        )  # fmt: skip

    async def _leave(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
