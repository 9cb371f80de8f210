"""HTTP whose every wait ends at one deadline: connecting, TLS, sending, headers and body together.

httpx2 bounds each read alone, so a peer that sends one byte now and then keeps a call alive for ever. Here every
socket operation inside `with until(seconds):` gets what is left of that time, as its timeout, and none may begin when
nothing is left. Not bounded is what no timeout reaches: the resolver's own patience for a host name.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

# What one timeout governs: httpcore2 loops inside a write with the same timeout, so a write is handed over in pieces.
WRITE_BYTES = 64 * 1024

_RAISED = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@cache
def _trusted() -> ssl.SSLContext:
    """What we trust; read once a process, as reading the certificates takes 30 ms of CPU."""
    return httpx2.create_ssl_context()


@contextmanager
def until(seconds: float) -> Iterator[None]:
    """Everything this thread sends and receives inside ends `seconds` from now; a later end inside changes nothing."""
    end, outer = time.monotonic() + seconds, _deadline.get()
    token = _deadline.set(end if outer is None else min(end, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


def _left(timeout: float | None, late: type[Exception]) -> float | None:
    """The seconds an operation may take; raises `late` when the deadline has passed."""
    end = _deadline.get()
    if end is None:
        return timeout
    left = end - time.monotonic()
    if left <= 0:
        raise late("the deadline passed")
    return left if timeout is None else min(timeout, left)


class _Stream(httpcore2.NetworkStream):
    """A connection whose reads and writes know the deadline of whoever uses it now."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), WRITE_BYTES):
            self._inner.write(buffer[at : at + WRITE_BYTES], _left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        try:
            left = _left(timeout, httpcore2.ConnectTimeout)
            return _Stream(self._inner.start_tls(ssl_context, server_hostname, left))
        except BaseException:  # nobody else holds the socket yet
            self._inner.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore2.SyncBackend):
    """Opens connections that know the deadline, to the address that `place` gives for a host."""

    def __init__(self, place: Callable[[str, int], str] = lambda host, port: host) -> None:
        self._place = place

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(super().connect_tcp(self._place(host, port), port, left, local_address, socket_options))


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """httpcore2's errors under the names httpx2 gives them; those two lists are the same."""
    try:
        yield
    except _RAISED as error:
        known: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise known(str(error)) from error


class _Body(httpx2.SyncByteStream):
    """The body of an answer; closing it gives the connection back, or ends it when the body was not read."""

    def __init__(self, inner: Iterable[bytes], give_back: Callable[[], None]) -> None:
        self._inner = inner
        self._give_back: Callable[[], None] | None = give_back

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx2():
            yield from self._inner

    def close(self) -> None:
        if self._give_back is None:
            return
        give_back, self._give_back = self._give_back, None
        if hasattr(self._inner, "close"):
            self._inner.close()
        give_back()


class _Idle:
    """Connections that wait for their next request, the last used on top.

    httpcore2's own pool looks at every connection twice a request: with 1,000 of them the pool took 80 % of a core.
    Taking the youngest needs no look at the others, and the oldest at the bottom are the first to expire.
    """

    def __init__(self) -> None:
        self._stacks: dict[tuple[bytes, bytes, int], deque[httpcore2.ConnectionInterface]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, origin: httpcore2.Origin) -> httpcore2.ConnectionInterface | None:
        """A connection that still lives, or None. Nobody else gets it until it is put back."""
        while True:
            with self._lock:
                stack = self._stacks.get((origin.scheme, origin.host, origin.port))
                connection = stack.pop() if stack else None
            if connection is None or not connection.has_expired():
                return connection
            connection.close()

    def put(self, origin: httpcore2.Origin, connection: httpcore2.ConnectionInterface) -> None:
        """Keep a connection for the next request, if it can carry one, and close the one that waited longest."""
        ended = []
        with self._lock:
            if self._closed or not connection.is_idle():
                ended.append(connection)
            else:
                stack = self._stacks.setdefault((origin.scheme, origin.host, origin.port), deque())
                stack.append(connection)
                while stack[0].has_expired():
                    ended.append(stack.popleft())
                    if not stack:
                        break
        for connection in ended:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ended = [connection for stack in self._stacks.values() for connection in stack]
            self._stacks.clear()
        for connection in ended:
            connection.close()


class DeadlineTransport(httpx2.BaseTransport):
    """An httpx2 transport that keeps connections and obeys `until`. Safe to share between threads.

    A request has a connection for itself, so there are never more than threads asking; an idle one is kept
    `keep_alive` seconds. Proxies are those of the environment, as httpx2 itself would take them (http and https
    proxies; no SOCKS). `place` says at which address a host is reached, or raises; then there are no proxies, which
    would look the host up themselves. Raises httpx2's exceptions.
    """

    def __init__(
        self,
        *,
        keep_alive: float,
        place: Callable[[str, int], str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "ssl_context": context or _trusted(),
            "keepalive_expiry": keep_alive,
            "network_backend": _Backend() if place is None else _Backend(place),
        }
        # The pools only make connections here: directly, and through a proxy.
        self._direct = httpcore2.ConnectionPool(**options)
        self._proxies: dict[str, httpcore2.ConnectionPool] = {}
        found = getproxies() if place is None else {}
        for scheme in ("http", "https"):
            if address := found.get(scheme) or found.get("all"):
                proxy = httpx2.Proxy(address if "://" in address else f"http://{address}")
                target = str(proxy.url.copy_with(path="/"))
                self._proxies[scheme] = httpcore2.HTTPProxy(target, proxy_auth=proxy.raw_auth, **options)
        self._idle = _Idle()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of the answer is read from the returned response, still under the deadline."""
        assert isinstance(request.stream, Iterable)
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        asked = httpcore2.Request(
            method=request.method,
            url=url,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx2():
            connection = self._idle.take(url.origin) or self._connection(request.url, url.origin)
            answer = connection.handle_request(asked)
        assert isinstance(answer.stream, Iterable)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream, partial(self._idle.put, url.origin, connection)),
            extensions=answer.extensions,
        )

    def _connection(self, url: httpx2.URL, origin: httpcore2.Origin) -> httpcore2.ConnectionInterface:
        pool = self._proxies.get(url.scheme)
        if pool is None or proxy_bypass(url.host):
            pool = self._direct
        return pool.create_connection(origin)

    def close(self) -> None:
        """Close the idle connections now and the busy ones when their request has ended."""
        self._idle.close()
