"""A strict Slack on the loopback: the Web API's methods that we call, every documented limit enforced, errors on
request, and too many requests at random. It keeps what a person would see.
"""

from __future__ import annotations

import json
import random
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
LONGEST_PAYLOAD = 12_000
MENTION = re.compile(r"<[!@#]")


class Refusal(Exception):
    """What Slack answers instead: `{"ok": false, "error": …}`."""


@dataclass
class Said:
    """One message as it stands there."""

    channel: str
    ts: str
    text: str
    blocks: list[Json]
    thread_ts: str | None = None
    metadata: Json = field(default_factory=dict)
    files: list[Json] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """The texts of its sections, or its text."""
        return "\n".join(block["text"]["text"] for block in self.blocks if "text" in block) or self.text

    @property
    def buttons(self) -> list[str]:
        """What its buttons carry."""
        return [e["value"] for block in self.blocks if block["type"] == "actions" for e in block["elements"]]


class FakeSlack:
    """The server. `errors`: what the next calls of a method answer; `storm`: how often 429 is answered; `lose`: methods
    whose next call is carried out and whose answer is lost.
    """

    def __init__(self, *, seed: int = 1) -> None:
        self.said: list[Said] = []
        self.calls: list[str] = []
        self.errors: dict[str, list[str]] = {}
        self.lose: list[str] = []
        self.storm = 0.0
        self.retry_after = "7"
        self.token = "xoxb-1"
        self.files: dict[str, str] = {}
        self.faults: list[str] = []
        """What no person must see, and was sent all the same; none at the end."""
        self._dice, self._lock, self._clock = random.Random(seed), threading.Lock(), 1_700_000_000
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        assert not self.faults, self.faults

    @property
    def host(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"{self.host}/api/"

    def of(self, channel: str) -> list[Said]:
        """What was said in a channel, in order."""
        return [message for message in self.said if message.channel == channel]

    def answer(self, method: str, given: Json, token: str) -> tuple[int, Json, bool]:
        """Status and body of one call, and whether the answer gets lost."""
        with self._lock:
            self.calls.append(method)
            if self._dice.random() < self.storm:
                return 429, {"ok": False, "error": "ratelimited"}, False
            if token != f"Bearer {self.token}":
                return 200, {"ok": False, "error": "invalid_auth"}, False
            if scripted := self.errors.get(method):
                word = scripted.pop(0)
                return (int(word), {}, False) if word.isdigit() else (200, {"ok": False, "error": word}, False)
            try:
                found = getattr(self, "_" + method.replace(".", "_"))(given)
            except Refusal as refusal:
                return 200, {"ok": False, "error": str(refusal)}, False
            except AssertionError as fault:
                self.faults.append(f"{method}: {fault}")
                return 200, {"ok": False, "error": "invalid_blocks"}, False
            lost = method in self.lose
            if lost:
                self.lose.remove(method)
            return 200, {"ok": True, **found}, lost

    def _next(self) -> str:
        self._clock += 1
        return f"{self._clock}.000100"

    def _chat_postMessage(self, given: Json) -> Json:
        channel, blocks = self._known(given["channel"]), given.get("blocks") or []
        _check(given.get("text") or "", blocks)
        thread = given.get("thread_ts")
        if thread is not None and not any(m.ts == thread for m in self.of(channel)):
            raise Refusal("thread_not_found")
        said = Said(channel, self._next(), given.get("text") or "", blocks, thread, given.get("metadata") or {})
        self.said.append(said)
        return {"channel": channel, "ts": said.ts}

    def _chat_update(self, given: Json) -> Json:
        _check(given.get("text") or "", given.get("blocks") or [])
        for message in self.of(given["channel"]):
            if message.ts == given["ts"]:
                message.text, message.blocks = given.get("text") or "", given.get("blocks") or []
                return {"channel": message.channel, "ts": message.ts}
        raise Refusal("message_not_found")

    def _conversations_open(self, given: Json) -> Json:
        if not given["users"].startswith("U"):
            raise Refusal("user_not_found")
        return {"channel": {"id": "D" + given["users"][1:]}}

    def _conversations_history(self, given: Json) -> Json:
        return self._page([m for m in self.of(given["channel"]) if m.thread_ts is None][::-1], given)

    def _conversations_replies(self, given: Json) -> Json:
        found = [m for m in self.of(given["channel"]) if given["ts"] in (m.ts, m.thread_ts)]
        if not found:
            raise Refusal("thread_not_found")
        return self._page(found, given)

    def _page(self, found: list[Said], given: Json) -> Json:
        begin, most = int(given.get("cursor") or 0), 5
        rows = [
            {"ts": m.ts, "text": m.text, "metadata": m.metadata, "files": m.files, "thread_ts": m.thread_ts or m.ts}
            for m in found[begin : begin + most]
        ]
        if str(given.get("include_all_metadata")).lower() not in ("1", "true"):
            rows = [{**row, "metadata": {}} for row in rows]
        more = str(begin + most) if begin + most < len(found) else ""
        return {"messages": rows, "response_metadata": {"next_cursor": more}}

    def _files_getUploadURLExternal(self, given: Json) -> Json:
        id_ = f"F{len(self.files)}"
        self.files[id_] = ""
        return {"file_id": id_, "upload_url": f"{self.host}/upload/{id_}/{given['filename']}"}

    def _files_completeUploadExternal(self, given: Json) -> Json:
        files = json.loads(given["files"]) if isinstance(given["files"], str) else given["files"]
        said = Said(self._known(given["channel_id"]), self._next(), "", [], given.get("thread_ts"))
        said.files = [{"id": file["id"], "name": self.files[file["id"]].partition("\0")[0]} for file in files]
        self.said.append(said)
        return {"files": files}

    def _known(self, channel: str) -> str:
        if not re.fullmatch(r"[CDG][A-Z0-9]+", channel):
            raise Refusal("channel_not_found")
        return channel


def _check(text: str, blocks: list[Json]) -> None:
    """Refuse what Slack would refuse, and what a person must never see."""
    if not text and not blocks:
        raise Refusal("no_text")
    if len(text) > 40_000:
        raise Refusal("msg_too_long")
    if len(json.dumps(blocks)) > LONGEST_PAYLOAD:
        raise Refusal("msg_blocks_too_long")
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(blocks) > 50 or len(ids) != len(set(ids)) or any(len(id_) > 255 for id_ in ids):
        raise Refusal("invalid_blocks")
    for block in blocks:
        _section(block["text"]) if block["type"] == "section" else _actions(block)
    _sound(text)


def _section(text: Json) -> None:
    if text["type"] != "mrkdwn" or not 1 <= len(text["text"]) <= 3000:
        raise Refusal("invalid_blocks")
    _sound(text["text"])
    assert text["text"].count("```") % 2 == 0, "code is closed where it was opened"


def _sound(text: str) -> None:
    assert not MENTION.search(text), "nobody is mentioned"
    assert not re.search(r"&(?!amp;|lt;|gt;)", text), "no entity is broken"
    assert not re.search(r"[\ud800-\udfff]", text), "no character is broken"
    assert re.sub(r"<(https?://|mailto:)[^<>\s]*(\|[^<>]*)?>", "", text).count("<") == 0, "no link is broken"


def _actions(block: Json) -> None:
    elements = block["elements"]
    if block["type"] != "actions" or not 1 <= len(elements) <= 25:
        raise Refusal("invalid_blocks")
    for element in elements:
        sizes = [(element["text"]["text"], 75), (element["value"], 2000), (element["action_id"], 255)]
        if confirm := element.get("confirm"):
            sizes += [(confirm["title"]["text"], 100), (confirm["text"]["text"], 300)]
            sizes += [(confirm["confirm"]["text"], 30), (confirm["deny"]["text"], 30)]
        if any(not 1 <= len(text) <= most for text, most in sizes):
            raise Refusal("invalid_blocks")


def _handler(fake: FakeSlack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """One call, or the upload of a file."""
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = urlsplit(self.path)
            if path.path.startswith("/upload/"):
                id_, name = path.path.removeprefix("/upload/").split("/", 1)
                fake.files[id_] = f"{name}\0{body.decode()}"
                self._say(200, b"OK", "text/plain")
                return
            given = {name: values[0] for name, values in parse_qs(path.query).items()}
            if "json" in (self.headers.get("content-type") or ""):
                given |= {name: value for name, value in json.loads(body).items() if value is not None}
            else:
                given |= {name: values[0] for name, values in parse_qs(body.decode()).items()}
            token = self.headers.get("authorization") or ""
            status, answer, lost = fake.answer(path.path.removeprefix("/api/"), given, token)
            if lost:
                self.close_connection = True
                self.connection.close()
                return
            self._say(status, json.dumps(answer).encode(), "application/json")

        do_GET = do_POST

        def _say(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            if status == 429:
                self.send_header("retry-after", fake.retry_after)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
