"""One POST for a webhook: to the public internet alone unless its target stands in our own network, with one deadline
for all of it, without redirects, and with nothing of the answer read but its head.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from twelvefold.ports import NotSent, PerhapsSent

from .deadline_http import DeadlineTransport, until
from .public import Look, NotPublic, look_up, placed
from .telemetry import kind_of

TOGETHER_S = 25.0
KEEP_ALIVE_S = 30.0
_NOT_BEGUN = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.PoolTimeout)


class Posting:
    """Sends webhooks; safe to share between threads."""

    def __init__(self, *, look: Look = look_up, transport: httpx2.BaseTransport | None = None) -> None:
        outside = DeadlineTransport(keep_alive=KEEP_ALIVE_S, place=placed(look)) if transport is None else transport
        inside = DeadlineTransport(keep_alive=KEEP_ALIVE_S, place=lambda host, port: host)
        self._clients = {False: _client(outside), True: _client(inside)}

    def __call__(
        self, url: str, body: bytes, headers: dict[str, str], inside: bool
    ) -> tuple[int, Mapping[str, str]]:  # fmt: skip
        """Status and headers of the answer. Raises NotSent or PerhapsSent."""
        try:
            with until(TOGETHER_S), self._clients[inside].stream("POST", url, content=body, headers=headers) as answer:
                return answer.status_code, answer.headers
        except NotPublic as error:
            raise NotSent(str(error), retry=False) from error
        except _NOT_BEGUN as error:
            raise NotSent(f"cannot be reached: {kind_of(error)}", retry=True) from error
        except httpx2.HTTPError as error:
            raise PerhapsSent(f"the answer was lost: {kind_of(error)}") from error


def _client(transport: httpx2.BaseTransport) -> httpx2.Client:
    return httpx2.Client(transport=transport, timeout=TOGETHER_S, follow_redirects=False, trust_env=False)
