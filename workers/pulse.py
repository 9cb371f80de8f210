"""What a process knows about itself: when the database last answered it, and whether it still hears the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

TRUST_S = 5.0


class Pulse:
    """When this process last heard from the database, by its monotonic clock. Heartbeats further apart than `gap`
    seconds are no row: in between was an outage.
    """

    def __init__(self, trust: float = TRUST_S, gap: float = TRUST_S) -> None:
        self._trust, self._gap = trust, gap
        self._last = monotonic()
        self._row = 0

    def beat(self, sent: float) -> None:
        """A heartbeat that was sent at `sent` is confirmed."""
        self._row = self._row + 1 if self._unbroken() else 1
        self._last = sent

    def missed(self) -> None:
        """A heartbeat failed."""
        self._row = 0

    def fresh(self) -> bool:
        """Whether outside effects may begin: the last confirmed heartbeat is at most 5 s old."""
        return monotonic() - self._last <= self._trust

    def steady(self, beats: int) -> bool:
        """Whether the last `beats` heartbeats all succeeded, up to now."""
        return self._row >= beats and self._unbroken()

    def _unbroken(self) -> bool:
        return monotonic() - self._last <= self._gap


class Canary:
    """Whether this process still consumes: it sends itself messages and wants to see them. Any message will do, and
    while every slot is at work there is nothing to be seen: long steps are no silence.
    """

    def __init__(self, slots: int, silence: float) -> None:
        self.seen = monotonic()
        self.sent = 0.0
        self._slots, self._silence = slots, silence
        self._busy, self._lock = 0, Lock()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A message came in, and takes a slot for as long as the block lasts."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._busy += change
            self.seen = monotonic()

    def silent(self) -> bool:
        """Whether messages went out, a slot was free for them, and none came for so long."""
        return self._busy < self._slots and self.sent > self.seen and monotonic() - self.seen > self._silence
