"""The heart of a worker process: heartbeat, sweep and canary, each a thread with a clock of its own.

Heartbeats say that the incarnation lives; whoever has not confirmed one for 5 s begins no outside effect.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from .pulse import Canary
from .store import alive
from .sweeper import ring_steps, sweep
from .telemetry import kind_of
from .work import Runtime

FEED_S = 0.05


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
        if run.settings.live_file is not None:
            every = (run.settings.heartbeat, run.settings.live_file.touch)
            self._threads.append(Thread(target=self._every, args=every, name="live", daemon=True))

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
