"""What a model's server can answer, well or badly, and how it is written on the wire.

An answer with calls takes the wire form of its question: tool calls, or, for a question with a `response_format`, the
content `{"call": {"tool": ..., "arguments": ...}}`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["reset_before_headers", "reset_after_headers", "slow_headers", "slow_body"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answers. `body` replaces everything that the fields below it would make."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault | None = None
    body: bytes | None = None
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments, the arguments as JSON text."""
    text: str | None = None
    refusal: str | None = None
    finish: str | None = None
    fingerprint: str | None = "fp_fake"
    usage: tuple[int, int] | None = (11, 7)


Script = Callable[[dict[str, Any]], Answer]


def content(text: str, *, finish: str = "stop") -> Answer:
    """Prose instead of a call; also what a question without a menu wants."""
    return Answer(text=text, finish=finish)


def tool_call(name: str, arguments: Mapping[str, Any] | str, **more: Any) -> Answer:
    """One call; `arguments` as a mapping, or as text to be sent just so. `more` are fields of `Answer`."""
    return Answer(calls=((name, _written(arguments)),), **more)


def tool_calls(*calls: tuple[str, Mapping[str, Any] | str]) -> Answer:
    """Several calls in one reply."""
    return Answer(calls=tuple((name, _written(arguments)) for name, arguments in calls))


def cut_arguments(name: str) -> Answer:
    """One call whose arguments end in the middle."""
    return tool_call(name, '{"a": 1', finish="length")


def prose_arguments(name: str, arguments: Mapping[str, Any]) -> Answer:
    """One call whose arguments have prose around them."""
    return tool_call(name, f"Sure! {_written(arguments)} Anything else?")


def duplicate_keys(name: str) -> Answer:
    """One call that names the argument `a` twice."""
    return tool_call(name, '{"a": 1, "a": 2}')


def refusal(text: str) -> Answer:
    """The model refuses, in the field made for it."""
    return Answer(refusal=text)


def no_choices() -> Answer:
    """200 with an empty list of choices."""
    return Answer(body=json.dumps({"id": "chatcmpl-fake", "object": "chat.completion", "choices": []}).encode())


def html() -> Answer:
    """200 with a web page, as a proxy gives it."""
    return Answer(body=b"<html><body>Welcome to the hotel</body></html>", headers={"Content-Type": "text/html"})


def error(status: int, code: str | None, message: str = "no", *, headers: Mapping[str, str] | None = None) -> Answer:
    """An error in OpenAI's shape."""
    body = {"error": {"message": message, "type": "fake_error", "param": None, "code": code}}
    return Answer(status=status, body=json.dumps(body).encode(), headers=headers or {})


def rate_limited(retry_after: int | str | None) -> Answer:
    """429; `retry_after` in seconds, or as an HTTP date."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return error(429, "rate_limit_exceeded", headers=headers)


def quota_spent() -> Answer:
    """429 that no waiting cures."""
    return error(429, "insufficient_quota")


def context_exceeded() -> Answer:
    """400: the prompt is longer than the model's context."""
    return error(400, "context_length_exceeded", "This model's maximum context length is 8192 tokens.")


def unauthorized(message: str = "Incorrect API key provided.") -> Answer:
    """401."""
    return error(401, "invalid_api_key", message)


def unknown_model() -> Answer:
    """404."""
    return error(404, "model_not_found")


def failing(status: int = 503) -> Answer:
    """The server's own failure, without a JSON body."""
    return Answer(status=status, body=b"upstream unavailable", headers={"Content-Type": "text/plain"})


def in_turn(*answers: Answer) -> Script:
    """Each answer once, the last one for ever."""
    lock, left = threading.Lock(), list(answers)

    def script(request: dict[str, Any]) -> Answer:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return script


def written(body: Any) -> bytes:
    """Any value as the bytes of a body."""
    return json.dumps(body).encode()


def _written(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def rendered(answer: Answer, question: dict[str, Any]) -> bytes:
    """The body of a 200 to this question."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    finish = answer.finish
    if answer.calls and "response_format" in question:
        message["content"] = "\n".join(
            f'{{"call": {{"tool": {json.dumps(name)}, "arguments": {text}}}}}' for name, text in answer.calls
        )
    elif answer.calls:
        finish = finish or "tool_calls"
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": text}}
            for n, (name, text) in enumerate(answer.calls, 1)
        ]
    body: dict[str, Any] = {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1_796_000_000,
        "model": question.get("model", ""),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish or "stop"}],
    }
    if answer.fingerprint is not None:
        body["system_fingerprint"] = answer.fingerprint
    if answer.usage is not None:
        sent, made = answer.usage
        body["usage"] = {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}
    return json.dumps(body).encode()
