"""The one HTTP client that tools get: hosts from the agent's list only, no redirects, nested timeouts.

It refuses to work while the tool reads the database, so that no transaction waits for a network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import httpx2

from twelvefold.errors import Fatal

CONNECT_S = 5.0


@lru_cache(maxsize=64)
def _transport() -> httpx2.HTTPTransport:
    return httpx2.HTTPTransport(limits=httpx2.Limits(max_connections=2_000, max_keepalive_connections=200))


class Guarded(httpx2.BaseTransport):
    """Lets a request through to a host on the list, and only while `free()` is true."""

    def __init__(self, hosts: tuple[str, ...], free: Callable[[], bool]) -> None:
        self.hosts = hosts
        self.free = free

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, or raise Fatal with what is missing in the declaration."""
        host = request.url.netloc.decode()
        if host not in self.hosts and request.url.host not in self.hosts:
            raise Fatal(f"The host {host} is not declared. Add it: Agent(hosts=[{host!r}]).", code="declaration")
        if not self.free():
            raise Fatal("ctx.http is not for use inside ctx.db(): leave the block first.", code="declaration")
        return _transport().handle_request(request)


def client(hosts: tuple[str, ...], timeout: float, free: Callable[[], bool]) -> httpx2.Client:
    """A client for one call of one tool; `timeout` in seconds, connecting at most 5."""
    limits = httpx2.Timeout(timeout, connect=min(CONNECT_S, timeout))
    return httpx2.Client(transport=Guarded(hosts, free), timeout=limits, follow_redirects=False, trust_env=False)
