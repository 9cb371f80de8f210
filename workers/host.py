"""One worker process: its runtime, its heart, and an orderly end."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from threading import Timer
from typing import Any

from kombu.entity import Queue

from twelvefold.ports import Channel

from .heart import Heart
from .lanes import LANES
from .relay import deliver
from .settings import Settings
from .step import step
from .store import alive
from .store.claims import not_rung
from .telemetry import configure
from .wiring import channels, runtime
from .work import Runtime


class Host:
    """What the Celery tasks of one process share, from the worker's start to its end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.run: Runtime | None = None
        self.heart: Heart | None = None
        self.channels: Mapping[str, Channel] = {}

    def start(self, worker: Any) -> None:
        """Begin an incarnation beside a Celery worker: register it, start the heart, listen to its own canary."""
        configure()
        self.run = runtime(self.settings)
        self._must_not_evict()
        self.channels = channels(self.run)
        queues = worker.app.amqp.queues
        slots = {lane: int(worker.concurrency) for lane in LANES if self.run.lanes.queue(lane) in queues.consume_from}
        canary = f"{self.run.lanes.prefix}.canary.{self.run.worker}"
        queues.select_add(Queue(canary, routing_key=canary, durable=False, auto_delete=True, expires=600))  # type: ignore[no-untyped-call]
        self.heart = Heart(self.run, slots, int(worker.concurrency), on_silence=lambda: self._give_up(1))
        self.heart.start()
        # what is loaded by now stays loaded: the collector need not walk through it again and again
        gc.collect()
        gc.freeze()
        self.run.log.info("worker_started", slots=slots, agents=sorted(self.run.registry.loaded))

    def stop(self) -> None:
        """End the incarnation; what it still holds is given back, not left to expire."""
        if self.run is None or self.heart is None:
            return
        self.run.stopping.set()
        self.heart.stop()
        freed = alive.leave(self.run.db, self.run.worker)
        self.run.log.info("worker_stopped", given_back=freed)
        self.run.db.close()
        self.run.lanes.close()
        self.heart = None

    def shutting_down(self) -> None:
        """Claim nothing more. Threads cannot be killed: after the grace time the process gives back and leaves."""
        if self.run is None:
            return
        self.run.stopping.set()
        timer = Timer(self.settings.soft_shutdown, self._give_up)
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

    def _give_up(self, code: int = 0) -> None:
        """Give back and leave at once. A code other than 0 asks whoever watches over us for a new process."""
        assert self.run is not None
        freed = alive.leave(self.run.db, self.run.worker)
        self.run.log.warning("worker_left", given_back=freed)
        os._exit(code)

    def step(self, task_id: str, queue: str) -> str:
        """One step, and the doorbell for the next one in the lane that this one came from."""
        assert self.run is not None and self.heart is not None
        lane = queue.rpartition(".")[2]
        with self.heart.canary.heard():
            left = step(task_id, self.run)
            if left.status != "ready":
                self.heart.hungry()
            elif not self.run.lanes.ring(lane if lane in LANES else "steps", [(task_id, left.shown)]):
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
