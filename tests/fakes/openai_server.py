"""A loopback server that speaks /v1/chat/completions and misbehaves on request.

with FakeOpenAI() as fake:
    fake.script(in_turn(rate_limited(1), failing(503), tool_call("Answer", {"text": "hello"})))
    OpenAIModel("key", fake.base_url).ask(...)
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.fakes.loopback import Handler, Loopback
from tests.fakes.openai_answers import (
    Answer,
    Fault,
    Script,
    content,
    context_exceeded,
    cut_arguments,
    duplicate_keys,
    error,
    failing,
    html,
    in_turn,
    no_choices,
    prose_arguments,
    quota_spent,
    rate_limited,
    refusal,
    rendered,
    tool_call,
    tool_calls,
    unauthorized,
    unknown_model,
    written,
)

__all__ = [
    "Answer",
    "FakeOpenAI",
    "Fault",
    "Script",
    "Seen",
    "content",
    "context_exceeded",
    "cut_arguments",
    "duplicate_keys",
    "error",
    "failing",
    "html",
    "in_turn",
    "no_choices",
    "prose_arguments",
    "quota_spent",
    "rate_limited",
    "refusal",
    "tool_call",
    "tool_calls",
    "unauthorized",
    "unknown_model",
    "written",
]

DRIP = 0.02
"""Seconds between two bytes of a slow answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived. Header names are in lower case; `at` is monotonic seconds."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any]
    at: float


class _Handler(Handler):
    def do_POST(self) -> None:
        raw, fake = self.body(), self.owner
        assert isinstance(fake, FakeOpenAI)
        seen = Seen(self.path, {k.lower(): v for k, v in self.headers.items()}, raw, json.loads(raw), time.monotonic())
        number = fake.note(seen)
        if not fake.gate.passed("asked"):
            self.close_connection = True
            return
        self._send(fake.answer_to(seen), seen, number)

    def _send(self, answer: Answer, seen: Seen, number: int) -> None:
        body = rendered(answer, seen.body) if answer.body is None else answer.body
        headers = {"Content-Type": "application/json", "x-request-id": f"req_{number}"} | dict(answer.headers)
        head = self.head(answer.status, len(body), headers)
        match answer.fault:
            case None:
                self.wfile.write(head + body)
            case "reset_before_headers":
                self.reset()
            case "reset_after_headers":
                self.wfile.write(head + body[:3])
                self.reset()
            case "slow_headers":
                self._drip(head + body)
            case "slow_body":
                self.wfile.write(head)
                self._drip(body)

    def _drip(self, data: bytes) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if not self.owner.gate.paused(DRIP):
                self.close_connection = True
                return


class FakeOpenAI(Loopback):
    """The server; `with FakeOpenAI() as fake`. Without a script every question gets the error 500 `no_script`.

    An exception in a script is a 500 to the client and raised again when the `with` is left.
    """

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._requests: list[Seen] = []
        self._script: Script = in_turn(error(500, "no_script"))
        self._failure: Exception | None = None

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.address}/v1"

    @property
    def requests(self) -> list[Seen]:
        """Every request so far, in order of arrival; those held are among them."""
        with self._lock:
            return list(self._requests)

    def script(self, script: Script | Answer) -> None:
        """From now on answer with this: a function of the request's JSON, or one answer for all."""
        self._script = in_turn(script) if isinstance(script, Answer) else script

    def hold(self) -> None:
        """Take requests, but answer none until `release`."""
        self.gate.hold("asked")

    def note(self, seen: Seen) -> int:
        """Called by a connection: keep the request and give it a number, from 1."""
        with self._lock:
            self._requests.append(seen)
            return len(self._requests)

    def answer_to(self, seen: Seen) -> Answer:
        """Called by a connection: what the script says."""
        if seen.path != "/v1/chat/completions":
            return error(404, "no_such_path")
        try:
            return self._script(seen.body)
        except Exception as failure:
            self._failure = failure
            return error(500, "script_failed")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._failure is not None and error is None:
            raise self._failure
