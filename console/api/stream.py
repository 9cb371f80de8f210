"""`GET /thread/{id}/events` as Server-Sent Events: the log from where the client left off, then what is added to it.

A stream that waits is a future: it holds no thread and no connection, and one statement every tenth of a second looks
for all. It ends after five minutes or with its token; clients come back by themselves and say what they saw last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from triggers.problem import Problem
from workers.store.database import UNAVAILABLE

from .problems import bad, busy
from .render import as_json
from .request import Call
from .waiters import Waiters

LIFE_S = 300.0
BEAT_S = 15.0
"""A comment is sent so often where nothing happens, so that a dead client is noticed, and the token is looked at."""
MOST = 200
MOST_OF_ONE = 20
"""So many streams of one token."""
PAGE = 200
COME_BACK_MS = 1000
Read = Callable[[int], Awaitable[list[dict[str, Any]]]]
"""The events after a seq, at most PAGE; raises Problem when the caller may not see them any more."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A stream that is asked for: the thread, and the seq of the last event that the client has seen."""

    thread: str
    after: int


def wish(call: Call, last_seen: str | None, after: int) -> Wish:
    """What a request asks for: `Last-Event-ID`, which clients send by themselves, goes before `after`."""
    if last_seen is None or last_seen == "":
        return Wish(call.thread, after)
    if not last_seen.isascii() or not last_seen.isdecimal() or int(last_seen) > 2**31 - 1:
        raise bad("Unusable Last-Event-ID", "Send the id of the last event you have seen, which is a number.")
    return Wish(call.thread, int(last_seen))


class Streams:
    """All streams of one process, and how many there are."""

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._open: Counter[int] = Counter()

    def admit(self, token: int) -> None:
        """Raise Problem 503 when there are too many already."""
        if self._open.total() >= MOST or self._open[token] >= MOST_OF_ONE:
            raise busy("Too many streams are open.")

    async def follow(self, wish: Wish, token: int, read: Read) -> AsyncIterator[str]:
        """The text of one stream, until its life is over, nobody listens, or its reader may not see more."""
        self._open[token] += 1
        seen, ends = wish.after, monotonic() + LIFE_S
        try:
            yield f"retry: {COME_BACK_MS}\n\n"
            while monotonic() < ends:
                found = await read(seen)
                for event in found:
                    seen = event["seq"]
                    yield written(event)
                if not found:
                    yield ": nothing new\n\n"
                if len(found) < PAGE:
                    await self._waiters.rest(f"{wish.thread} {seen}", min(BEAT_S, max(0.0, ends - monotonic())))
        except (Problem, *UNAVAILABLE):
            return  # the client comes back, and is told then
        finally:
            self._open[token] -= 1


def written(event: dict[str, Any]) -> str:
    """One event: its seq is the id, its type the name, all of it the data, on one line."""
    return f"id: {event['seq']}\nevent: {event['type']}\ndata: {as_json(event)}\n\n"
