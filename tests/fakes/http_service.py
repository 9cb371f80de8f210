"""An outside service with effects, for tools of kind Effect: it honours idempotency keys and fails as ordered.

    POST /effects          Idempotency-Key: KEY, a JSON body    performs once per key; 200 and the same result each time
    GET  /effects/KEY                                           200 with the result when it happened, else 404

The result is `{"key": KEY, "number": N, "body": BODY}`, N counting the effects from 1. Without a key, or with a body
that is no JSON, 400; the same key with another body, 422. Faults concern POST alone; `find` may look meanwhile.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from tests.fakes.loopback import Handler, Loopback


@dataclass(frozen=True, slots=True)
class Begun:
    """A request that arrived, whatever became of it. `at` is monotonic seconds; a GET has no body."""

    method: str
    key: str
    body: Any
    at: float


@dataclass(frozen=True, slots=True)
class Handled:
    """A POST whose turn came: `repeat` when its effect had happened before. `at` is monotonic seconds."""

    key: str
    body: Any
    at: float
    repeat: bool


class _Handler(Handler):
    def do_GET(self) -> None:
        service = self._service()
        key = unquote(self.path.removeprefix("/effects/"))
        service.arrived(Begun("GET", key, None, time.monotonic()))
        effect = service.effects.get(key) if self.path.startswith("/effects/") else None
        self._say(404 if effect is None else 200, effect or {"error": "not_found"})

    def do_POST(self) -> None:
        service, raw = self._service(), self.body()
        key = self.headers.get("Idempotency-Key", "")
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        service.arrived(Begun("POST", key, body, time.monotonic()))
        if self.path != "/effects" or not key or body is None:
            self._say(404 if self.path != "/effects" else 400, {"error": "bad_request"})
        elif not service.gate.paused(service.delay) or not service.gate.passed("before"):
            self.close_connection = True
        elif failure := service.next_failure():
            self._say(failure, {"error": "ordered_failure"})
        else:
            self._perform(service, key, body)

    def _perform(self, service: FakeService, key: str, body: Any) -> None:
        effect = service.perform(key, body)
        if not service.gate.passed("after") or service.next_drop():
            self.close_connection = True
        elif effect["body"] != body:
            self._say(422, {"error": "key_reused"})
        else:
            self._say(200, effect)

    def _service(self) -> FakeService:
        assert isinstance(self.owner, FakeService)
        return self.owner

    def _say(self, status: int, body: dict[str, Any]) -> None:
        self.answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class FakeService(Loopback):
    """The service; `with FakeService() as service`. All lists are copies and safe to read from the test."""

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._begun: list[Begun] = []
        self._handled: list[Handled] = []
        self._effects: dict[str, dict[str, Any]] = {}
        self._failures: list[int] = []
        self._drops = 0
        self.delay = 0.0
        """Seconds that every POST waits before it performs."""

    @property
    def url(self) -> str:
        """Where effects are posted."""
        return f"{self.address}/effects"

    def url_of(self, key: str) -> str:
        """Where one effect is asked after."""
        return f"{self.url}/{quote(key, safe='')}"

    @property
    def begun(self) -> list[Begun]:
        """Every request that arrived at all, those held and those failed among them, in order."""
        with self._lock:
            return list(self._begun)

    @property
    def requests(self) -> list[Handled]:
        """Every POST that got as far as performing, repeats among them, in order."""
        with self._lock:
            return list(self._handled)

    @property
    def effects(self) -> dict[str, dict[str, Any]]:
        """What has happened, once per key, in order: key to result."""
        with self._lock:
            return dict(self._effects)

    def slow(self, seconds: float) -> None:
        """From now on a POST performs, and answers, this much later, even when the client has gone; 0 ends it."""
        self.delay = seconds

    def fail(self, status: int, times: int = 1) -> None:
        """Answer the next `times` POSTs with this status and perform nothing."""
        with self._lock:
            self._failures += [status] * times

    def drop_answer(self, times: int = 1) -> None:
        """Perform the next `times` POSTs, then close the connection without a word."""
        with self._lock:
            self._drops += times

    def hold(self) -> None:
        """Hold every POST before it performs, until `release`; then it performs, even when its client is dead."""
        self.gate.hold("before")

    def hold_after(self) -> None:
        """Hold the answer of every POST, which has performed, until `release`."""
        self.gate.hold("after")

    def arrived(self, request: Begun) -> None:
        """Called by a connection."""
        with self._lock:
            self._begun.append(request)

    def perform(self, key: str, body: Any) -> dict[str, Any]:
        """Called by a connection: the effect, made now or found."""
        with self._lock:
            self._handled.append(Handled(key, body, time.monotonic(), repeat=key in self._effects))
            return self._effects.setdefault(key, {"key": key, "number": len(self._effects) + 1, "body": body})

    def next_failure(self) -> int | None:
        """Called by a connection: the status ordered for this POST."""
        with self._lock:
            return self._failures.pop(0) if self._failures else None

    def next_drop(self) -> bool:
        """Called by a connection: whether this answer is to be dropped."""
        with self._lock:
            dropped, self._drops = self._drops > 0, max(0, self._drops - 1)
            return dropped
