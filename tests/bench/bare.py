"""Bare Celery, the yardstick: a no-op task on the same pool, used the ordinary way."""

from __future__ import annotations

import os

from celery import Celery

QUEUE = "bare"

app = Celery("bare", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue=QUEUE,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600, "max_connections": 4000},
)


@app.task(name="noop")
def noop(number: int) -> None:
    """Nothing."""
    return None
