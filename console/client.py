"""A client of the control API in one file, with nothing but the standard library: copy it into your own program.

    from client import Client

    fleet = Client("http://127.0.0.1:8080", token="…")
    thread = fleet.open("Ship the pears", agent="desk", key="order-4711", wait=30)
    print(thread["status"], thread["events_url"])
    fleet.happened("build-7", {"passed": True}, key="build-7")

Every request that changes something carries an Idempotency-Key, so that it may be repeated: without one of yours it is
one of chance, kept over the client's own attempts. Those are made when the other side is away or asks for another
attempt (429, 502, 503, 504), with the pause that it names; what it refuses is raised as Refused, with its own words.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

ATTEMPTS = 5
AGAIN = (429, 502, 503, 504)
LONGEST_PAUSE = 30.0


class Refused(Exception):
    """The API does not take it: `status`, and `problem` with `title`, `detail` and what else it says."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status} {problem.get('title', 'refused')}: {problem.get('detail', '')}")
        self.status, self.problem = status, problem


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is for one address: it is carried to no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """The control API at `url`, as the principal of `token`. Times are seconds."""

    def __init__(
        self, url: str, token: str, *, timeout: float = 30.0, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._url, self._token, self._timeout, self._pause = url.rstrip("/"), token, timeout, pause
        self._open = urllib.request.build_opener(_NoRedirect)

    def open(
        self, message: str | None = None, *, event: Any = None, agent: str | None = None, key: str | None = None,
        wait: float = 0, **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Open a thread with words or with an `event` as the agent accepts it; `wait` so long for the end of its turn.
        `more` is `delivery`, `business_ref` or `budget`. The same `key` again is the same thread.
        """
        said = {"message": message, "event": event, "agent": agent, **more}
        body = {name: value for name, value in said.items() if value is not None}
        return self._post("/thread", body, key, wait)

    def thread(self, id: str) -> dict[str, Any]:
        """How a thread stands: status, what it waits for, its events, its budget."""
        return self._send("GET", f"/thread/{quote(id)}")

    def events(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """The log of a thread, page by page, from the seq `after` on."""
        while True:
            page = self._send("GET", f"/thread/{quote(id)}/events?{urlencode({'after': after})}")["events"]
            yield from page
            if not page:
                return
            after = page[-1]["seq"]

    def respond(self, id: str, text: str, *, key: str | None = None, wait: float = 0) -> dict[str, Any]:
        """Say something to a thread, or answer what it asks."""
        return self._post(f"/thread/{quote(id)}/response", {"type": "response", "response": text}, key, wait)

    def decide(self, id: str, approved: bool, *, call_id: int, digest: str, comment: str = "") -> dict[str, Any]:
        """Approve or reject the call `call_id` of a thread, as it was shown with `digest`."""
        said = {"type": "approval", "approved": approved, "comment": comment, "call_id": call_id, "digest": digest}
        return self._post(f"/thread/{quote(id)}/response", said, None, 0)

    def happened(self, event: str, data: Any = None, *, key: str | None = None) -> dict[str, Any]:
        """Wake whoever waits for this event; without anybody it is kept for a day. For the end of a pipeline."""
        return self._post("/events", {"key": event, "data": data}, key, 0)

    def cancel(self, id: str, reason: str = "") -> dict[str, Any]:
        """End a thread; what is under way finishes, and nothing else begins."""
        return self._post(f"/thread/{quote(id)}/cancel", {"reason": reason}, None, 0)

    def _post(self, path: str, body: Any, key: str | None, wait: float) -> dict[str, Any]:
        query = f"?{urlencode({'wait': wait})}" if wait else ""
        return self._send("POST", path + query, body, key or str(uuid.uuid4()), self._timeout + wait)

    def _send(
        self, method: str, path: str, body: Any = None, key: str = "", timeout: float | None = None
    ) -> dict[str, Any]:
        data = None if method == "GET" else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                with self._open.open(request, timeout=timeout or self._timeout) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as error:
                with error:
                    problem = _problem(error.read())
                if error.code not in AGAIN or last:
                    raise Refused(error.code, problem) from None
                self._pause(_pause(error.headers.get("Retry-After"), attempt))
            except OSError:
                if last:
                    raise
                self._pause(_pause(None, attempt))
        raise AssertionError("the last attempt ends in an answer or an error")


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": body[:200].decode(errors="replace")}


def _pause(named: str | None, attempt: int) -> float:
    return min(LONGEST_PAUSE, float(named) if named and named.isdecimal() else 0.5 * 2**attempt)
