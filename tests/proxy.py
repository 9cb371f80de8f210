"""A TCP proxy that loses, holds and cuts what a test tells it to, in front of PostgreSQL, Valkey, SMTP or HTTP.

Promises: bytes pass unchanged and in order, all of them unless a rule says otherwise; `close` leaves no socket open.
It sees plain bytes only, so the connections that it stands in must not use TLS.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

Direction = Literal["to_server", "to_client"]


class Rule:
    """Something to do once, to the next chunk with `match` in it, even when the match is spread over two chunks.

    With `after` it holds for connections only on which this has gone to the server before.
    """

    def __init__(
        self, match: bytes, direction: Direction, then: Literal["hold", "drop_answer"], changed: threading.Condition,
        after: bytes = b"",
    ) -> None:  # fmt: skip
        self.match = match
        self.after = after
        self.direction = direction
        self.then = then
        self.fired = False
        self.released = False
        self._changed = changed

    def wait(self, timeout: float = 10.0) -> None:
        """Wait until the chunk came; AssertionError after `timeout` seconds."""
        with self._changed:
            came = self._changed.wait_for(lambda: self.fired, timeout)
        assert came, f"nothing with {self.match!r} passed {self.direction} within {timeout:g} s"

    def release(self) -> None:
        """Let the held chunk go; when it has not come yet, the rule is undone."""
        with self._changed:
            self.released = True
            self._changed.notify_all()


class Proxy:
    """A proxy in front of `target`, open on a port of 127.0.0.1 as soon as it is made.

    Args:
        target: a host name, or the path of a Unix socket (such as `Postgres.socket`).
        port: the TCP port of the host; without meaning for a Unix socket.
    """

    def __init__(self, target: str | Path, port: int = 0) -> None:
        self._target = target if port and not isinstance(target, Path) else Path(target)
        self._target_port = port
        self._changed = threading.Condition()
        self._black_hole = False
        self.lag = 0.0
        """So many seconds each chunk to the server is late."""
        self._closed = False
        self._rules: list[Rule] = []
        self._lines: set[_Line] = set()
        self._listener = _Listener(("127.0.0.1", 0), _Line)
        self._listener.proxy = self
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), name="proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The TCP port to connect to instead of the server's own."""
        return int(self._listener.server_address[1])

    def url(self, url: str) -> str:
        """`url` with the server's address replaced by the proxy's; scheme, role, password, path and options stay."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        options = [(key, value) for key, value in parse_qsl(parts.query) if key not in {"host", "port"}]
        query = urlencode(options, quote_via=quote)
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}", query=query).geturl()

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        with self._changed:
            return len(self._lines)

    def cut(self) -> None:
        """Close all connections at both ends, and wait until they are gone. New ones are served."""
        with self._changed:
            lines = set(self._lines)
            for line in lines:
                line.end()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not lines & self._lines, timeout=10)

    def black_hole(self, on: bool) -> None:
        """While on, connections are accepted and stay open, but nothing passes, neither bytes nor a connection's end.

        As after a network partition, what was sent meanwhile arrives when it is switched off.
        """
        with self._changed:
            self._black_hole = on
            self._changed.notify_all()

    def hold_next(self, match: bytes, direction: Direction = "to_server", after: bytes = b"") -> Rule:
        """Hold the next chunk that contains `match`, and what follows it on the same connection in the same direction.

        Only on a connection on which `after` has gone to the server since now. It goes on at `release`, of the returned
        rule or of the proxy. `wait` of the rule returns when it is held.
        """
        return self._add(Rule(match, direction, "hold", self._changed, after))

    def drop_answer_after(self, match: bytes) -> Rule:
        """Forward the next chunk to the server with `match` in it; cut the connection instead of forwarding the reply.

        The server has done its work then, and the client cannot know.
        """
        return self._add(Rule(match, "to_server", "drop_answer", self._changed))

    def release(self) -> None:
        """Let go all that is held, and forget the rules that have not fired."""
        with self._changed:
            for rule in self._rules:
                rule.release()
            self._rules.clear()

    def close(self) -> None:
        """Listen no longer and close all connections."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._closed = True
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, rule: Rule) -> Rule:
        with self._changed:
            self._rules.append(rule)
        return rule

    def _reach(self) -> socket.socket:
        """A connection to the server."""
        if not isinstance(self._target, Path):
            upstream = socket.create_connection((self._target, self._target_port), timeout=10)
            upstream.settimeout(None)
            return upstream
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(str(self._target))
        except OSError:
            upstream.close()
            raise
        return upstream

    def _admit(self, line: _Line) -> bool:
        """Register a new connection; returns, once it may go on, whether it shall."""
        with self._changed:
            self._lines.add(line)
            line.ended = self._closed
            self._changed.wait_for(lambda: line.ended or not self._black_hole)
            return not line.ended

    def _forget(self, line: _Line) -> None:
        with self._changed:
            self._lines.discard(line)
            self._changed.notify_all()

    def _gate(self, line: _Line, direction: Direction, before: bytes, chunk: bytes) -> bool:
        """Apply the rules to `chunk`, which follows `before`; returns, once it may go on, whether it shall."""
        if self.lag and direction == "to_server":
            time.sleep(self.lag)
        with self._changed:
            for rule in self._rules:
                if rule.after and direction == "to_server" and rule.after in before[-len(rule.after) + 1 :] + chunk:
                    line.past.add(rule.after)
                # A match must end in this chunk: what passed before the rule was made is no business of the rule.
                window = before[max(0, len(before) - len(rule.match) + 1) :] + chunk
                if rule.direction != direction or rule.fired or rule.released or rule.match not in window:
                    continue
                if rule.after and rule.after not in line.past:
                    continue
                rule.fired = True
                self._changed.notify_all()
                if rule.then == "drop_answer":
                    line.muted = True
                else:
                    self._changed.wait_for(lambda rule=rule: line.ended or rule.released)  # type: ignore[misc]
                break
            self._changed.wait_for(lambda: line.ended or not self._black_hole)
            return not (line.ended or (line.muted and direction == "to_client"))


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True  # a test that forgets `close` must not keep the process alive
    request_queue_size = 128
    proxy: Proxy


class _Line(socketserver.BaseRequestHandler):
    """One connection: two pumps, one for each direction. Made and run by the listener in a thread of its own."""

    server: _Listener
    request: socket.socket
    ended = False
    muted = False
    _upstream: socket.socket | None = None

    def setup(self) -> None:
        """What has gone to the server of all that a rule waits for."""
        self.past: set[bytes] = set()

    def handle(self) -> None:
        """Serve until both directions are at their end."""
        proxy = self.server.proxy
        try:
            if proxy._admit(self):
                self._serve(proxy)
        finally:
            self.request.close()
            proxy._forget(self)

    def _serve(self, proxy: Proxy) -> None:
        try:
            self._upstream = proxy._reach()
        except OSError:
            return  # the client sees its connection closed, as when the server is down
        with self._upstream as upstream:
            there = threading.Thread(target=self._pump, args=(self.request, upstream, "to_server"), daemon=True)
            there.start()
            self._pump(upstream, self.request, "to_client")
            there.join()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        before = b""
        try:
            while not self.ended:
                chunk = source.recv(65536)
                if not self.server.proxy._gate(self, direction, before, chunk):
                    self.end()
                elif chunk:
                    sink.sendall(chunk)
                    before = (before + chunk)[-4096:]
                else:
                    sink.shutdown(socket.SHUT_WR)
                    return
        except OSError:
            self.end()

    def end(self) -> None:
        """Close both ends; the pumps wake up from it."""
        self.ended = True
        ends: tuple[Any, ...] = (self.request, self._upstream)
        for end in ends:
            if end is not None:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
