"""The Celery application. Celery carries doorbells: no result backend, no ETA, no beat, JSON only.

The one module that may read the environment at import, because `celery -A workers.app` imports it for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu.entity import Queue
from kombu.transport import redis as transport

from .lanes import LANES
from .settings import Settings, load

VISIBILITY_S = 3600
"""Over twice the longest step; the broker's redelivery is only a second net below our own sweep."""


MOST_AT_ONCE = 16
"""So many messages are taken in one go, or the loop would be late for everything else."""


class Bells(transport.Channel):
    """kombu builds a Redis client for every publish and every acknowledgement, and takes one message in each round
    of its loop; this keeps one client for each channel, and takes as many messages as there are free slots.
    """

    free: Callable[[], int] = staticmethod(lambda: 0)
    """How many more messages this worker could begin now; told when the worker starts."""

    def _brpop_read(self, **options: Any) -> bool:
        super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        for queue in self._queue_cycle.items[-1:]:  # the one that the message came from; none when consuming has ended
            self._take_more(queue)
        return True

    def _take_more(self, queue: str) -> None:
        """What else stands in the queue, as far as slots are free."""
        if (room := min(self.free(), MOST_AT_ONCE)) <= 0 or not self.qos.can_consume():
            return
        try:
            items = self.client.execute_command("RPOP", queue, room)
        except self.connection_errors:
            self.client.connection.disconnect()
            raise
        for item in items or ():
            self.connection._deliver(json.loads(item), queue)

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """The client given, or the channel's own."""
        if client is None:
            client = self.__dict__.get("_kept_client")
        if client is None:
            client = self.__dict__["_kept_client"] = self._create_client()  # type: ignore[no-untyped-call]
        yield client

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge what has to be; a doorbell is gone when it is read, and costs no second round trip."""
        if delivery_tag in self.qos._delivered:
            super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]


def doorbells(name: str, **options: Any) -> Queue:
    """A queue whose messages are gone once they are read: a lost doorbell is rung again, so nothing acknowledges."""
    return Queue(name, routing_key=name, no_ack=True, **options)  # type: ignore[no-untyped-call]


def make(settings: Settings) -> Celery:
    """The application for these settings."""
    transport.Transport.Channel = Bells
    app = Celery("twelvefold", broker=settings.broker_url.get_secret_value(), include=["workers.tasks"])
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_queues=[doorbells(f"{settings.lane_prefix}.{lane}") for lane in LANES],
        task_track_started=False,
        task_publish_retry=False,
        task_default_queue=f"{settings.lane_prefix}.steps",
        task_send_sent_event=False,
        worker_send_task_events=settings.worker_events,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        task_acks_late=True,  # acknowledges nothing to the broker, but wakes the consumer when a slot is free
        worker_disable_rate_limits=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # a demoted or full broker answers with errors; that is no reason to die
        broker_pool_acquire_timeout=5,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_S,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 25,
            "max_connections": 4_000,
            "client_name": "twelvefold",
        },
    )
    app.settings = settings
    return app


app = make(load())
