"""Doorbells: one Celery message with a task id, pushed in one round trip, never more than the lane's window.

The message is written in Celery's protocol 2 as kombu's Redis transport stores it (a test compares the two), because
building one through Celery costs several times the step's commit. A lost, doubled or late doorbell changes nothing.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Sequence
from functools import lru_cache
from time import monotonic
from typing import cast
from uuid import uuid4

import redis

LANES = ("answers", "steps", "delivery")
TASKS = {"answers": "twelvefold.step", "steps": "twelvefold.step", "delivery": "twelvefold.deliver"}
PAUSE_S = 2.0
"""After a failure nothing is pushed for so long; the sweeper rings what was missed."""

PUSH = """
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
local pushed = 0
for i = 2, #ARGV do
  if pushed >= room then break end
  redis.call('LPUSH', KEYS[1], ARGV[i])
  pushed = pushed + 1
end
return pushed
"""
OPTIONS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Lanes:
    """The lanes of one broker. `windows` says how many messages may stand in each; the sweeper keeps it current."""

    def __init__(self, url: str, prefix: str) -> None:
        self.prefix = prefix
        self.windows: dict[str, int] = dict.fromkeys(LANES, 2)
        self.client = redis.Redis.from_url(
            url, socket_timeout=2, socket_connect_timeout=1, socket_keepalive=True, health_check_interval=25,
            max_connections=2_000,
        )  # fmt: skip
        self._push = self.client.register_script(PUSH)
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        self._quiet_until = 0.0

    def queue(self, lane: str) -> str:
        """The name of the lane's queue."""
        return f"{self.prefix}.{lane}"

    def ring(self, lane: str, bells: Sequence[tuple[str, str]]) -> int:
        """Push (id, what to show an operator) pairs while the window has room: how many went in. Never raises."""
        if not bells or monotonic() < self._quiet_until:
            return 0
        messages = [self._message(lane, task_id, shown) for task_id, shown in bells]
        try:
            return int(self._push(keys=[self.queue(lane)], args=[self.windows[lane], *messages]))
        except (redis.RedisError, OSError):
            self._quiet_until = monotonic() + PAUSE_S
            # a demoted or restarted server must not keep a connection of ours
            self.client.connection_pool.disconnect()
            return 0

    def canary(self, queue: str, stamp: str) -> bool:
        """Push a canary into a worker's own queue; False when the broker does not answer."""
        try:
            self.client.lpush(queue, self._message("steps", stamp, "canary", task="twelvefold.canary"))
            self.client.expire(queue, 300)
        except (redis.RedisError, OSError):
            return False
        return True

    def length(self, lane: str) -> int | None:
        """How many messages stand in the lane; None when the broker does not answer."""
        try:
            return int(self.client.llen(self.queue(lane)))
        except (redis.RedisError, OSError):
            return None

    def policy(self) -> str | None:
        """What the broker does when its memory is full; None when it does not answer, or does not tell."""
        try:
            return cast(str | None, self.client.info("memory").get("maxmemory_policy"))
        except (redis.RedisError, OSError):
            return None

    def _message(self, lane: str, task_id: str, shown: str, task: str | None = None) -> str:
        body = base64.b64encode(json.dumps([[task_id], {}, OPTIONS]).encode()).decode()
        return (
            _form(task or TASKS[lane], self.queue(lane), self._origin)
            .replace('"<id>"', f'"{uuid4()}"')
            .replace('"<body>"', f'"{body}"')
            .replace('"<kwargs>"', json.dumps(repr({"task_id": task_id})))
            .replace('"<args>"', json.dumps(shown))
        )

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


@lru_cache(maxsize=64)
def _form(task: str, queue: str, origin: str) -> str:
    """A message with places for what differs from one to the next; to encode it whole each time costs thrice that."""
    return json.dumps({
        "body": "<body>", "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {
            "lang": "py", "task": task, "id": "<id>", "root_id": "<id>", "parent_id": None, "group": None,
            "group_index": None, "retries": 0, "eta": None, "expires": None, "timelimit": [None, None],
            "shadow": None, "ignore_result": True, "argsrepr": "<args>", "kwargsrepr": "<kwargs>",
            "origin": origin, "stamped_headers": None, "stamps": {}, "replaced_task_nesting": 0,
        },
        "properties": {
            "correlation_id": "<id>", "reply_to": "", "delivery_mode": 2, "priority": 0,
            "delivery_info": {"exchange": "", "routing_key": queue}, "body_encoding": "base64",
            "delivery_tag": "<id>",
        },
    })  # fmt: skip
