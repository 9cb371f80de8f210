"""The model port on the openai SDK: one question, one answer, or an error that says whether waiting may help.

The SDK never retries here (the step policy owns retries), the raw reply is kept as it came, and a call ends at
`request.timeout` seconds whatever the other side does. Exceptions and log lines carry the status code, the provider's
error code and the request id; never the prompt, the reply or the key.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import openai

from twelvefold.errors import Fatal, Transport
from twelvefold.ports import ModelReply, ModelRequest

from .deadline_http import DeadlineTransport, until
from .model_wire import answer, question, written
from .profiles import OPENAI, Profile

KEEP_ALIVE = 4.0
"""Seconds. Below the 5 s after which uvicorn, and so vLLM, drops an idle connection under our feet."""
LONGEST_RETRY_AFTER = 86_400.0
"""Seconds. What a server asks for beyond a day is cut to a day."""

_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_CONTEXT = {"context_length_exceeded", "exceed_context_size_error"}
_CONTEXT_SAID = re.compile(r"maximum context length|context (length|size|window)", re.IGNORECASE)
_SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class OpenAIModel:
    """Asks any server that speaks OpenAI's chat.completions; share one object between all threads and close it.

    `base_url=None` is OpenAI itself. `profile` says what the server can do; `connect_timeout` is in
    seconds. A key that no HTTP header can hold raises `Fatal(code="auth")` here.
    """

    def __init__(
        self, api_key: str, base_url: str | None, profile: Profile = OPENAI, connect_timeout: float = 5.0
    ) -> None:
        if not re.fullmatch(r"[!-~]+", api_key):
            raise Fatal("the API key is empty or has spaces, line ends or letters beyond ASCII in it", code="auth")
        self._profile = profile
        self._connect_timeout = connect_timeout
        transport = DeadlineTransport(keep_alive=KEEP_ALIVE)
        self._client = openai.OpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            # A prompt goes where the operator pointed and nowhere else: no redirects.
            http_client=httpx2.Client(transport=transport, follow_redirects=False),
        )

    def ask(self, request: ModelRequest) -> ModelReply:
        """The model's answer as it came. Raises Transport (retry_after in seconds) and Fatal.

        `Transport.kind`: rate_limit, timeout, connect, reset, server, conflict, malformed, no_choices.
        `Fatal.code`: auth, quota, model, context, request.
        """
        began = time.monotonic()
        outcome = self._exchange(request)
        # Raised outside any `except`: the provider's own words must not ride along as the context of the error.
        if isinstance(outcome, Fatal | Transport):
            raise outcome
        status, headers, content = outcome
        request_id = _safe(headers.get("x-request-id"))
        reply = None
        body = _decoded(content)
        if body is not None:
            reply = answer(
                body,
                self._profile.form,
                raw=content.decode(),
                request_id=request_id,
                duration_ms=round((time.monotonic() - began) * 1000),
            )
        if reply is None:
            kind = "malformed" if not isinstance(body, dict) else "no_choices"
            raise Transport(_told("the model's answer has no usable form", status, kind, request_id), kind=kind)
        return reply

    def close(self) -> None:
        """Close the connections, those of calls under way when they end."""
        self._client.close()

    def _exchange(self, request: ModelRequest) -> tuple[int, Mapping[str, str], bytes] | Fatal | Transport:
        """Status, headers and body of a 2xx answer, or the error to raise."""
        timeout = httpx2.Timeout(request.timeout, connect=min(self._connect_timeout, request.timeout))
        options: Any = {"timeout": timeout, "headers": {"Content-Type": "application/json"}}
        body = request.body or written(question(request, self._profile))
        try:
            with until(request.timeout):
                # The very bytes that the log can show later; the SDK's typed arguments cost over 1 ms of CPU a call.
                response = self._client.post(
                    "/chat/completions", cast_to=httpx2.Response, content=body.encode(), options=options
                )
            return response.status_code, response.headers, response.content
        except openai.APIStatusError as error:
            return _from_status(error.status_code, error.response.headers, error.response.content)
        except openai.APIConnectionError as error:
            return _from_connection(error.__cause__)
        except UnicodeEncodeError:
            return Fatal("the request holds text that is not valid Unicode", code="request")


def _from_status(status: int, headers: Mapping[str, str], content: bytes) -> Fatal | Transport:
    codes, said = _provider_codes(_decoded(content))
    request_id = _safe(headers.get("x-request-id"))
    code = next((c for c in codes if _safe(c)), None)

    def fatal(what: str, reason: str) -> Fatal:
        return Fatal(_told(what, status, code, request_id), code=reason)

    if status == 402 or _QUOTA.intersection(codes):
        return fatal("the account has no quota left; raise it, then retry the task", "quota")
    if status in (401, 403):
        return fatal("the provider refused the key; check it and what it may use", "auth")
    if status == 404 or "model_not_found" in codes:
        return fatal("the provider knows no such model or path; check the model id and base_url", "model")
    if status in (400, 413) and (_CONTEXT.intersection(codes) or _CONTEXT_SAID.search(said)):
        return fatal("the request is longer than the model's context", "context")
    kind = {408: "timeout", 409: "conflict", 429: "rate_limit"}.get(status, "server" if status >= 500 else None)
    if kind is None:
        return fatal("the provider cannot use this request", "request")
    what = "the provider asked us to come back later" if kind == "rate_limit" else "the provider failed"
    return Transport(_told(what, status, code, request_id), retry_after=_retry_after(headers), kind=kind)


def _from_connection(cause: BaseException | None) -> Transport:
    match cause:
        case httpx2.ConnectTimeout() | httpx2.ConnectError() | httpx2.ProxyError() | httpx2.UnsupportedProtocol():
            return Transport("the model's server could not be reached", kind="connect")
        case httpx2.TimeoutException():
            return Transport("the model did not answer in time", kind="timeout")
        case httpx2.DecodingError():
            return Transport("the model's answer could not be decompressed", kind="malformed")
        case _:
            return Transport("the connection to the model broke", kind="reset")


def _decoded(content: bytes) -> Any:
    """The JSON in an answer body, None when it is none."""
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):
        return None


def _provider_codes(body: Any) -> tuple[list[str], str]:
    """The code and type in an error body, and its message, which may be matched but never shown."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return [], ""
    codes = [value for value in (error.get("code"), error.get("type")) if isinstance(value, str)]
    return codes, str(error.get("message", ""))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the answer asks: `retry-after-ms`, else `Retry-After` in seconds or as an HTTP date."""
    seconds = _number(headers.get("retry-after-ms"), 1000)
    if seconds is None:
        seconds = _number(headers.get("retry-after"), 1)
    if seconds is None:
        due = _http_date(headers.get("retry-after"))
        # The server's own clock, where it shows it, is the one its date was read from.
        now = _http_date(headers.get("date")) or datetime.now(UTC)
        seconds = (due - now).total_seconds() if due else None
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def _number(text: str | None, unit: int) -> float | None:
    return float(text) / unit if text and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text.strip()) else None


def _http_date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found


def _safe(text: str | None) -> str | None:
    """A code or id of the other side, None when it does not look like one."""
    return text if text and _SAFE.fullmatch(text) else None


def _told(what: str, status: int, code: str | None, request_id: str | None) -> str:
    return f"{what} (status {status}, code {code or 'none'}, request {request_id or 'unknown'})"
