"""The side of Slack that calls us: it signs, sends events, clicks and commands, and is told what came of a click.

Strict as the real one: an answer to a click goes to an address of this click only, five times at most.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

SECRET = "slack-signing-secret-1"
TEAM, BOT, APP = "T1", "UBOT", "A1"


class Workspace:
    """One workspace. `post(path, content=…, headers=…)` is how it reaches us."""

    def __init__(self, post: Any, answers: str = "http://127.0.0.1:1/") -> None:
        self._post, self.answers, self._n = post, answers, 0

    def send(self, path: str, body: bytes, secret: str = SECRET, late: int = 0, **headers: str) -> Any:
        """Sign and send, with a clock that is `late` seconds behind."""
        stamp = str(int(time.time()) - late)
        digest = hmac.digest(secret.encode(), f"v0:{stamp}:".encode() + body, "sha256").hex()
        kind = "application/json" if path.endswith("events") else "application/x-www-form-urlencoded"
        given = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}", "Content-Type": kind}
        return self._post(f"/slack/{path}", content=body, headers={**given, **headers})

    def says(
        self, text: str, user: str = "U1", *, ts: str, inner: Any = None, outer: Any = None, retry: int = 0
    ) -> Any:
        """Somebody writes; `inner` and `outer` change the event and its envelope."""
        self._n += 1
        event = {
            "type": "app_mention", "user": user, "text": text, "ts": ts, "channel": "C1", "event_ts": ts,
            **(inner or {}),
        }  # fmt: skip
        body = {
            "token": "x", "team_id": TEAM, "api_app_id": APP, "type": "event_callback", "event_id": f"Ev{self._n}",
            "event_time": 1700000000, "event": event,
            "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": BOT, "is_bot": True}],
            **(outer or {}),
        }  # fmt: skip
        again: Any = {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"} if retry else {}
        return self.send("events", json.dumps(body).encode(), **again)

    def clicks(self, value: str, user: str = "U1", team: str = TEAM, **change: Any) -> Any:
        """Somebody presses a button."""
        self._n += 1
        action = {
            "type": "button",
            "block_id": "b1",
            "action_id": "approve",
            "value": value,
            "action_ts": f"{self._n}.0",
        }
        said = {
            "type": "block_actions", "team": {"id": team}, "user": {"id": user}, "channel": {"id": "C1"},
            "container": {"type": "message", "message_ts": "1700000000.000100", "channel_id": "C1"},
            "state": {"values": {}}, "response_url": f"{self.answers}actions/{self._n}", "trigger_id": "1.2.3",
            "actions": [action], **change,
        }  # fmt: skip
        return self.send("interactivity", urlencode({"payload": json.dumps(said)}).encode())

    def commands(self, command: str, text: str, user: str = "U1", trigger: str = "1.2.a") -> Any:
        """Somebody types a command."""
        fields = {
            "team_id": TEAM, "user_id": user, "channel_id": "C1", "command": command, "text": text,
            "response_url": f"{self.answers}commands/1", "trigger_id": trigger,
        }  # fmt: skip
        return self.send("commands", urlencode(fields).encode())


class Told:
    """Where answers to clicks arrive: `texts`, and `all` with what came beside them."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.url = ""
        self._used: dict[str, int] = {}

    def take(self, path: str, body: dict[str, Any]) -> int:
        """The status for one answer."""
        with self.changed:
            self._used[path] = self._used.get(path, 0) + 1
            if not path.startswith("/actions/") or self._used[path] > 5 or not isinstance(body.get("text"), str):
                return 404
            self.all.append(body)
            self.changed.notify_all()
        return 200

    def next(self, count: int) -> str:
        """The text of this answer, once it is there."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.all) >= count, 30), "nobody was told"
            assert len(self.all) == count
            return str(self.all[-1]["text"])


@contextmanager
def told() -> Iterator[Told]:
    """A server for the answers to clicks."""
    found = Told()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(found.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
