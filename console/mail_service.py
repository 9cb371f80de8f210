"""The process behind `twelvefold mail-in`: listeners and the reader of a mailbox, around one mailroom."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from threading import Event, Thread
from typing import Literal, cast

from workers.mailroom import Mailroom
from workers.settings import Settings
from workers.telemetry import configure

from .edge import edge
from .mail_imap import Reader
from .mail_in import Listener

LEAVING_S = 30.0


def serve(settings: Settings, ports: Mapping[str, int], host: str, stopping: Event) -> None:
    """Take mails until `stopping` is set. `ports` are those of `smtp` and `lmtp`, 0 for none."""
    configure()
    held = edge(settings)
    room = Mailroom(held.db, held.agents, settings, held.log, held.bell.ring)
    with ExitStack() as stack:
        stack.callback(held.close)
        for kind, port in ports.items():
            if port:
                listener = Listener(room, held.log, cast(Literal["smtp", "lmtp"], kind), host, port)
                held.log.info("mail_listening", kind=kind, port=listener.start())
                stack.callback(listener.stop)
        if settings.imap_host:
            reader = Thread(target=Reader(settings, room, held.db, held.log, stopping).run, name="imap-reader")
            reader.start()
            stack.callback(reader.join, LEAVING_S)
        stopping.wait()
