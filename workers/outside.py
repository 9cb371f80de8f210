"""What a running tool may use: the one HTTP client, with hosts from the agent's list only, no redirects and nested
timeouts, and a look into the database. A host may be the name of a service that the settings place.

The client refuses to work while the tool reads the database, so that no transaction waits for a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache

import httpx2
from sqlalchemy.orm import Session

from twelvefold.errors import Fatal
from twelvefold.state import Task

from .services import placed
from .store.database import Database

CONNECT_S = 5.0


@lru_cache(maxsize=64)
def _transport() -> httpx2.HTTPTransport:
    return httpx2.HTTPTransport(limits=httpx2.Limits(max_connections=2_000, max_keepalive_connections=200))


class Guarded(httpx2.BaseTransport):
    """Lets a request through to a host on the list, and only while `free()` is true."""

    def __init__(self, hosts: tuple[str, ...], services: dict[str, str], free: Callable[[], bool]) -> None:
        self.hosts = hosts
        self.services = services
        self.free = free

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, or raise Fatal with what is missing in the declaration."""
        host = request.url.netloc.decode()
        if host not in self.hosts and request.url.host not in self.hosts:
            raise Fatal(f"The host {host} is not declared. Add it: Agent(hosts=[{host!r}]).", code="declaration")
        if not self.free():
            raise Fatal("ctx.http is not for use inside ctx.db(): leave the block first.", code="declaration")
        request.url = placed(request.url, self.services)
        request.headers["Host"] = request.url.netloc.decode()
        return _transport().handle_request(request)


def client(hosts: tuple[str, ...], services: dict[str, str], timeout: float, free: Callable[[], bool]) -> httpx2.Client:
    """A client for one call of one tool; `timeout` in seconds, connecting at most 5."""
    limits = httpx2.Timeout(timeout, connect=min(CONNECT_S, timeout))
    return httpx2.Client(
        transport=Guarded(hosts, services, free), timeout=limits, follow_redirects=False, trust_env=False
    )


class Context:
    """What a running tool may use (the core's `Ctx`)."""

    def __init__(
        self, db: Database, task: Task, key: str, hosts: tuple[str, ...], services: dict[str, str], timeout: float
    ) -> None:
        self.key = key
        self.task = task
        self._database = db
        self._reading = False
        self._hosts, self._services, self._timeout = hosts, services, timeout

    @cached_property
    def http(self) -> httpx2.Client:
        """The guarded client, made when it is asked for."""
        return client(self._hosts, self._services, self._timeout, lambda: not self._reading)

    @contextmanager
    def db(self) -> Iterator[Session]:
        """One REPEATABLE READ READ ONLY transaction."""
        self._reading = True
        try:
            with self._database.reading() as session:
                session.info["tenant"] = self.task.tenant
                yield session
        finally:
            self._reading = False
