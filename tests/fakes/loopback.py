"""What the loopback servers of the tests share: threads, connections that all end, and a gate to hold requests at.

A server listens on 127.0.0.1 on a free port from construction or `with`; leaving the `with` lets go of everything held,
cuts every connection and waits for every thread, so that no socket or thread outlives a test.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

PATIENCE = 10.0
"""Seconds a test waits for what must come; never waited out when all is well."""


class Held:
    """Requests stand held at a gate. As a context manager, leaving it releases them."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.release()


class Gate:
    """Lets requests pass, or holds them by the name of the place they have come to, until released."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shut: set[str] = set()
        self._closed = False
        self._standing = 0

    def hold(self, place: str) -> None:
        """From now on whoever comes to `place` waits."""
        with self._changed:
            self._shut.add(place)

    def release(self) -> None:
        """Let all go, everywhere, and hold nobody any more."""
        with self._changed:
            self._shut.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """The server ends: those held learn that they must not go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def passed(self, place: str) -> bool:
        """Wait while `place` is held; False when the server ended meanwhile."""
        with self._changed:
            if place in self._shut:
                self._standing += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or place not in self._shut)
                self._standing -= 1
            return not self._closed

    def paused(self, seconds: float) -> bool:
        """Wait this long; False when the server ended meanwhile."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._closed, seconds)

    def waiting(self, n: int, timeout: float) -> Held:
        """Wait until at least `n` requests stand held; AssertionError after `timeout` seconds.

        A request counts for as long as it stands here, even when the client behind it is dead.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._standing >= n, timeout):
                raise AssertionError(f"{self._standing} of {n} requests held after {timeout} s")
        return Held(self)


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass adds `do_POST` and the like."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def owner(self) -> Loopback:
        """The fake this connection belongs to."""
        assert isinstance(self.server, _Server)
        return self.server.owner

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def handle(self) -> None:
        """Serve until the peer, or the server, has had enough."""
        try:
            super().handle()
        except OSError:  # the peer went away: what half of these tests are about
            self.close_connection = True

    def finish(self) -> None:
        """Forget the connection."""
        assert isinstance(self.server, _Server)
        self.server.closed(self.connection)
        try:
            super().finish()
        except OSError:
            self.close_connection = True

    def body(self) -> bytes:
        """The whole request body; ConnectionError when the peer went away in the middle of it."""
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("half a request")
        return body

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send a whole answer in one piece."""
        self.wfile.write(self.head(status, len(body), headers) + body)

    def head(self, status: int, length: int, headers: dict[str, str]) -> bytes:
        """The status line and headers, as bytes."""
        lines = [f"HTTP/1.1 {status} Fake", f"Content-Length: {length}", f"Date: {self.date_time_string()}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def reset(self) -> None:
        """End the connection with a TCP reset instead of a farewell."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    request_queue_size = 2048
    daemon_threads = False

    def __init__(self, handler: type[Handler], owner: Loopback) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self.accepted = 0
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, to end it with the server."""
        with self._lock:
            self._open.add(request)
            self.accepted += 1
        super().process_request(request, client_address)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def count(self) -> int:
        with self._lock:
            return len(self._open)

    def cut(self) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # the peer was quicker
                    continue

    def shutdown_request(self, request: Any) -> None:
        """Close, but say no farewell where a reset was ordered."""
        on, seconds = struct.unpack("ii", request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        if on and not seconds:
            self.close_request(request)
        else:
            super().shutdown_request(request)


class Loopback:
    """A server with a gate. A subclass names its handler, which finds it as `self.server.owner`."""

    handler: type[Handler]

    def __init__(self) -> None:
        self.gate = Gate()
        self._server = _Server(self.handler, self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def connections(self) -> int:
        """How many connections were ever accepted."""
        return self._server.accepted

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return self._server.count()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.close()
        self._server.shutdown()
        self._thread.join()
        self._server.cut()
        self._server.server_close()

    def release(self) -> None:
        """Let everything held go on, and hold nothing any more."""
        self.gate.release()

    def waiting(self, n: int, timeout: float = PATIENCE) -> Held:
        """Block until `n` requests stand held; `with server.waiting(1): ...` releases them at the end."""
        return self.gate.waiting(n, timeout)


def until_true(condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Poll until the condition holds; AssertionError after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come to be")
        threading.Event().wait(0.005)
