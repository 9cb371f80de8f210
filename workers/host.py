"""One worker process: its runtime, its heart, and an orderly end."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from threading import Timer
from time import monotonic
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
        self.channels = channels(self.run)
        queues = worker.app.amqp.queues
        slots = {lane: int(worker.concurrency) for lane in LANES if self.run.lanes.queue(lane) in queues.consume_from}
        canary = f"{self.run.lanes.prefix}.canary.{self.run.worker}"
        queues.select_add(Queue(canary, routing_key=canary, durable=False, auto_delete=True, expires=600))  # type: ignore[no-untyped-call]
        self.heart = Heart(self.run, slots, on_silence=self._give_up)
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

    def _give_up(self) -> None:
        assert self.run is not None
        freed = alive.leave(self.run.db, self.run.worker)
        self.run.log.warning("worker_left", given_back=freed)
        os._exit(0)

    def step(self, task_id: str) -> str:
        """One step, and the doorbell for the next one."""
        assert self.run is not None
        left = step(task_id, self.run)
        assert self.heart is not None
        if left.status != "ready":
            self.heart.hungry()
        elif not self.run.lanes.ring("steps", [(task_id, left.shown)]):
            not_rung(self.run.db, task_id)
        return left.status

    def deliver(self, letter_id: str) -> str:
        """One outbox row."""
        assert self.run is not None
        return deliver(letter_id, self.run, self.channels)

    def hear(self, stamp: str) -> str:
        """The canary came back."""
        assert self.heart is not None
        self.heart.canary.seen = monotonic()
        return f"sent {stamp}"
