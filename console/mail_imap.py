"""A mailbox that is read over IMAP: every new mail once, in order, marked as seen only after the commit.

What was read is known by (UIDVALIDITY, UID) in a row of the database, not by flags that a person may change. A mailbox
that is read for the first time begins with what nobody has seen yet; one whose UIDs were given out anew is read from
its beginning, and mails that were taken before are known by their key. The server is asked to tell of new mail (IDLE)
and asked anew every few minutes, as RFC 2177 wants it before 29; one that cannot tell is polled.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from imapclient import IMAPClient

from triggers.mail import Envelope
from triggers.mail_limits import MOST_BYTES, Excessive
from workers.mailroom import Mailroom
from workers.settings import Settings
from workers.store import mails
from workers.store.database import Database
from workers.telemetry import Log, kind_of

POLL_S = 240.0
LOOK_S = 2.0
"""How often it looks whether it is to stop, while the server has nothing to tell."""
TIMEOUT_S = 60.0
LONGEST_WAIT_S = 300.0


@dataclass
class Reader:
    """Reads one folder until `stopping` is set."""

    settings: Settings
    room: Mailroom
    db: Database
    log: Log
    stopping: Event
    first_wait: float = 1.0
    poll: float = POLL_S

    @property
    def name(self) -> str:
        """The mailbox as it stands in the database and in keys, the same after a move of the server."""
        return f"imap:{self.settings.imap_username}/{self.settings.imap_folder}"

    def run(self) -> None:
        """Read for ever; whatever fails, the server or the database, is tried again after a while."""
        wait = self.first_wait
        while not self.stopping.is_set():
            began = monotonic()
            try:
                with self.connected() as client:
                    self.follow(client)
            except Exception as error:  # the line, the server, the database: what is not read yet stays where it is
                self.log.warning("mailbox_not_read", error=kind_of(error))
            wait = self.first_wait if monotonic() - began > LONGEST_WAIT_S else min(wait * 2, LONGEST_WAIT_S)
            self.stopping.wait(wait)

    def connected(self) -> IMAPClient:
        """A connection that is logged in."""
        s = self.settings
        assert s.imap_host is not None
        context = ssl.create_default_context()
        implicit = s.imap_tls == "implicit"
        client = IMAPClient(
            s.imap_host, s.imap_port, ssl=implicit, ssl_context=context if implicit else None, timeout=TIMEOUT_S
        )
        if s.imap_tls == "starttls":
            client.starttls(context)
        client.login(s.imap_username, s.imap_password.get_secret_value() if s.imap_password else "")
        return client

    def follow(self, client: IMAPClient) -> None:
        """Read what is there, then whatever comes, until the line breaks or it is to stop."""
        tells = client.has_capability("IDLE")
        while not self.stopping.is_set():
            self.read(client)
            if tells:
                self._idle(client)
            else:
                self.stopping.wait(self.poll)
                client.noop()

    def read(self, client: IMAPClient) -> int:
        """Take every mail that is new; how many. A crash in between takes none twice and loses none."""
        chosen = client.select_folder(self.settings.imap_folder)
        validity = int(chosen[b"UIDVALIDITY"])
        after = self._position(client, validity, int(chosen[b"UIDNEXT"]))
        new = sorted(uid for uid in client.search(["UID", f"{after + 1}:*"]) if uid > after)  # `n:*` has the last one
        for uid in new:
            if self.stopping.is_set():
                break
            self._take(client, uid)
            mails.advance(self.db, self.settings.tenant, self.name, validity, uid)
            client.add_flags([uid], [b"\\Seen"])
        return len(new)

    def _position(self, client: IMAPClient, validity: int, following: int) -> int:
        known = mails.position(self.db, self.settings.tenant, self.name)
        if known is not None:
            return known[1] if known[0] == validity else 0
        unseen = client.search(["UNSEEN"])
        after = min(unseen, default=following) - 1
        mails.advance(self.db, self.settings.tenant, self.name, validity, after)
        return int(after)

    def _take(self, client: IMAPClient, uid: int) -> None:
        found: dict[int, Any] = client.fetch([uid], [b"RFC822.SIZE"])
        if uid not in found:
            return  # somebody deleted it meanwhile
        size = int(found[uid][b"RFC822.SIZE"])
        raw = client.fetch([uid], [b"BODY.PEEK[]"]).get(uid, {}).get(b"BODY[]") if size <= MOST_BYTES else b""
        try:
            if size > MOST_BYTES:
                raise Excessive(f"The mail is over {MOST_BYTES} bytes.")
            if raw:
                self.room.receive(raw, Envelope(self.name))
        except Excessive as error:  # it stays in the mailbox, where a person may look at it
            self.log.error("mail_refused", uid=uid, bytes=size, why=str(error))

    def _idle(self, client: IMAPClient) -> None:
        client.idle()
        until = monotonic() + self.poll
        try:
            while not self.stopping.is_set() and monotonic() < until:
                if client.idle_check(timeout=min(LOOK_S, self.poll)):
                    break
        finally:
            client.idle_done()
