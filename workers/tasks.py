"""Celery's entry points: each takes one id from a doorbell, does one thing and rings on."""

from __future__ import annotations

from typing import Any

from celery import signals
from celery.bootsteps import StartStopStep
from celery.worker import state

from .app import Bells, app
from .host import Host

host = Host(app.settings)


class HeartStep(StartStopStep):
    """Heartbeat, sweep and canary beside the worker; started in the worker itself, never before a fork."""

    def start(self, worker: Any) -> None:
        """Begin a new incarnation."""
        Bells.free = staticmethod(lambda: int(worker.concurrency) - len(state.reserved_requests))
        host.start(worker)

    def close(self, worker: Any) -> None:
        """The first thing of every end, also of one that no signal announced or that Celery itself broke."""
        host.shutting_down(worker.exitcode or 0)


app.steps["worker"].add(HeartStep)


@app.task(name="twelvefold.step", bind=True)
def step(self: Any, task_id: str) -> str:
    """One step of one task."""
    return host.step(task_id, self.request.delivery_info["routing_key"])


@app.task(name="twelvefold.deliver")
def deliver(letter_id: str) -> str:
    """One row of the outbox."""
    return host.deliver(letter_id)


@app.task(name="twelvefold.canary")
def canary(stamp: str) -> str:
    """A message of this worker to itself."""
    return host.hear(stamp)


@signals.worker_shutdown.connect
def shut_down(**_: object) -> None:
    """Every thread is done: give back what is held and leave."""
    host.stop()


@signals.worker_shutting_down.connect
def shutting_down(exitcode: int, **_: object) -> None:
    """Take no further claim; after the grace time give back what is still held."""
    host.shutting_down(exitcode)
