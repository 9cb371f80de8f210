"""The heart of a worker process: heartbeat, sweep and canary, each a thread with a clock of its own.

Heartbeats say that the incarnation lives; whoever has not confirmed one for 5 s begins no outside effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic

from .store import alive
from .sweeper import ring_steps, sweep
from .telemetry import kind_of
from .work import Runtime

TRUST_S = 5.0
FEED_S = 0.05


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


class Heart:
    """Runs heartbeat and sweep beside a worker until stopped. `slots` are those of each lane, `threads` all there are;
    `on_silence` is called when it consumes no more.
    """

    def __init__(self, run: Runtime, slots: dict[str, int], threads: int, on_silence: Callable[[], None]) -> None:
        self.run = run
        self.slots = slots
        self.canary = Canary(threads, run.settings.silence)
        self.on_silence = on_silence
        self._stop, self._hungry = Event(), Event()
        self._more = False
        self._threads = [
            Thread(target=self._every, args=(run.settings.heartbeat, self._beat), name="heartbeat", daemon=True),
            Thread(target=self._every, args=(run.settings.sweep, self._sweep), name="sweep", daemon=True),
            Thread(target=self._every, args=(run.settings.canary, self._sing), name="canary", daemon=True),
            Thread(target=self._feed, name="feed", daemon=True),
        ]

    def start(self) -> None:
        """Register this incarnation and start the threads. Raises when the database cannot be reached."""
        alive.register(self.run.db, self.run.worker, self.slots, self.run.registry.known)
        for thread in self._threads:
            thread.start()

    def hungry(self) -> None:
        """A task has left the lane and another could take its place."""
        if self._more:
            self._hungry.set()

    def hush(self) -> None:
        """Begin nothing more, and do not wait for what is under way."""
        self._stop.set()
        self._hungry.set()

    def stop(self) -> None:
        """Stop the threads."""
        self.hush()
        for thread in self._threads:
            thread.join(timeout=5)

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        while not self._stop.wait(seconds):
            try:
                action()
            except Exception as error:  # a heart that stops for an error would look like a dead worker
                self.run.log.warning("heart_trouble", what=action.__name__, error=kind_of(error))
                if action == self._beat:
                    self.run.pulse.missed()

    def _beat(self) -> None:
        sent = monotonic()
        if not alive.beat(self.run.db, self.run.worker) and not self._stop.is_set():
            alive.register(self.run.db, self.run.worker, self.slots, self.run.registry.known)
        self.run.pulse.beat(sent)

    def _sweep(self) -> None:
        self._more = sweep(self.run).get("more", 0) > 0

    def _feed(self) -> None:
        """While there is a backlog, short tasks must not wait for the next sweep: ring as soon as some have ended."""
        while not self._stop.wait(FEED_S):
            self._hungry.wait()
            self._hungry.clear()
            try:
                self._more = ring_steps(self.run)
            except Exception as error:
                self.run.log.warning("heart_trouble", what="feed", error=kind_of(error))

    def _sing(self) -> None:
        if self.canary.silent():
            self.run.log.error("consumes_nothing", for_s=int(monotonic() - self.canary.seen))
            self.on_silence()
        elif self.run.lanes.canary(f"{self.run.lanes.prefix}.canary.{self.run.worker}", str(monotonic())):
            self.canary.sent = monotonic()
