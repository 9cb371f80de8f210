"""One worker process: its runtime, its heart, and an orderly end."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Mapping
from threading import Thread, Timer
from typing import Any

from kombu.entity import Queue

from twelvefold.ports import Channel

from .heart import Heart
from .intake import Intake
from .lanes import LANES
from .relay import deliver
from .settings import Settings
from .step import step
from .store import alive
from .store.claims import not_rung
from .telemetry import configure, kind_of
from .timetable import Timetable
from .wiring import beside, channels, runtime
from .work import Runtime

MOST_SKEW_S = 30.0
LEAVE_S = 3.0
"""So long a process that has to go tries to give back what it holds."""


YOUNG_OBJECTS = 20_000
"""A step makes about a thousand objects and drops them all; with the default of 700 the collector walks every step."""


class Host:
    """What the Celery tasks of one process share, from the worker's start to its end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = time.time
        self.run: Runtime | None = None
        self.heart: Heart | None = None
        self.channels: Mapping[str, Channel] = {}

    def start(self, worker: Any) -> None:
        """Begin an incarnation beside a Celery worker: register it, start the heart, listen to its own canary."""
        configure()
        self.run = runtime(self.settings)
        self._must_not_evict()
        self._must_agree()
        self.channels = channels(self.run)
        queues = worker.app.amqp.queues
        slots = {lane: int(worker.concurrency) for lane in LANES if self.run.lanes.queue(lane) in queues.consume_from}
        canary = f"{self.run.lanes.prefix}.canary.{self.run.worker}"
        queues.select_add(Queue(canary, routing_key=canary, durable=False, auto_delete=True, expires=600))  # type: ignore[no-untyped-call]
        self.heart = Heart(beside(self.run), slots, int(worker.concurrency), on_silence=lambda: self._give_up(1))
        self.heart.start()
        Timetable(Intake(self.run.db, self.run.registry, self.run.log)).recompute()
        # what is loaded by now stays loaded: the collector need not walk through it again and again
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 20, 20)
        self.run.log.info("worker_started", slots=slots, agents=sorted(self.run.registry.loaded))

    def stop(self) -> None:
        """End the incarnation; what it still holds is given back, not left to expire."""
        if self.run is None or self.heart is None:
            return
        self.run.stopping.set()
        self.heart.stop()
        self._leave("worker_stopped")
        self.heart.run.db.close()
        self.run.db.close()
        self.run.lanes.close()
        self.heart = None

    def shutting_down(self, code: int) -> None:
        """Claim nothing more. Threads cannot be killed: after the grace time the process gives back and leaves."""
        if self.run is None or self.run.stopping.is_set():
            return
        self.run.stopping.set()
        timer = Timer(self.settings.soft_shutdown, self._give_up, [code])
        timer.daemon = True
        timer.start()

    def _must_not_evict(self) -> None:
        """A broker that evicts loses queues without a word. One that does not answer now is asked by nobody."""
        assert self.run is not None
        policy = self.run.lanes.policy()
        if policy not in (None, "noeviction"):
            self.run.log.error(
                "broker_evicts", maxmemory_policy=policy,
                mend="Set maxmemory-policy noeviction on the broker, and keep caches on a server of their own.",
            )  # fmt: skip
            sys.exit(1)

    def _must_agree(self) -> None:
        """Times are the database's. A machine that tells another time reads signatures and certificates wrongly."""
        assert self.run is not None
        skew = alive.skew(self.run.db, self.clock)
        if abs(skew) > MOST_SKEW_S:
            self.run.log.error(
                "clock_skewed", seconds=round(skew),
                mend=f"This machine's clock is over {MOST_SKEW_S:g} s off the database's. Set it, with NTP.",
            )  # fmt: skip
            sys.exit(1)

    def _give_up(self, code: int) -> None:
        """Give back and leave at once. A code other than 0 asks whoever watches over us for a new process."""
        if self.run is not None and self.heart is not None:
            self.run.stopping.set()
            self.heart.hush()
            leaving = Thread(target=self._leave, args=("worker_left",), daemon=True)
            leaving.start()
            leaving.join(LEAVE_S)
        os._exit(code)

    def _leave(self, how: str) -> None:
        """Give back what is held. With the database away it is freed by others, as a dead worker's is."""
        assert self.run is not None and self.heart is not None
        try:
            freed = alive.leave(self.heart.run.db, self.run.worker)
        except Exception as error:
            self.run.log.error("leaving_failed", error=kind_of(error))
        else:
            self.run.log.info(how, given_back=freed)

    def step(self, task_id: str, queue: str) -> str:
        """One step, and the doorbell for the next one in the lane that this one came from."""
        assert self.run is not None and self.heart is not None
        lane = queue.rpartition(".")[2]
        with self.heart.canary.heard():
            left = step(task_id, self.run)
            if left.status == "ready":
                rung = self.run.lanes.ring(lane if lane in LANES else "steps", [(task_id, left.shown)]) == 1
            else:
                rung = not self.run.stopping.is_set()
                self.heart.hungry()
            if not rung:
                not_rung(self.run.db, task_id)
        return left.status

    def deliver(self, letter_id: str) -> str:
        """One outbox row."""
        assert self.run is not None and self.heart is not None
        with self.heart.canary.heard():
            return deliver(letter_id, self.run, self.channels)

    def hear(self, stamp: str) -> str:
        """The canary came back."""
        assert self.heart is not None
        with self.heart.canary.heard():
            return f"sent {stamp}"
