"""What a running tool may use: the one HTTP client, with hosts from the agent's list only, no redirects and nested
timeouts, and a look into the database. A host may be the name of a service that the settings place.

The client refuses to work while the tool reads the database, so that no transaction waits for a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from ipaddress import ip_address

import httpx2
from sqlalchemy.orm import Session

from twelvefold.errors import Fatal
from twelvefold.state import Task

from . import public
from .deadline_http import DeadlineTransport
from .services import placed
from .store.database import Database

CONNECT_S = 5.0
KEEP_ALIVE_S = 5.0


@lru_cache(maxsize=2)
def _transport(inside: bool) -> httpx2.BaseTransport:
    """To our own network, or to the public internet alone: to the very address that was judged."""
    if not inside:
        return DeadlineTransport(keep_alive=KEEP_ALIVE_S, place=public.placed())
    return httpx2.HTTPTransport(limits=httpx2.Limits(max_connections=2_000, max_keepalive_connections=200))


def _inside(host: str, services: dict[str, str]) -> bool:
    """Whether somebody said that this host is ours: the operator who placed it, or an agent that names an address."""
    try:
        return host in services or host == "localhost" or bool(ip_address(host.strip("[]")))
    except ValueError:
        return False


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
        inside = _inside(request.url.host, self.services)
        request.url = placed(request.url, self.services)
        request.headers["Host"] = request.url.netloc.decode()
        try:
            return _transport(inside).handle_request(request)
        except public.NotPublic as error:
            raise Fatal(
                f"The host {host} leads into a private network. Name it in Agent(hosts=…) as a service and place it: "
                "TWELVEFOLD_SERVICES=stock=http://10.0.0.5:8080", code="declaration",
            ) from error  # fmt: skip


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
