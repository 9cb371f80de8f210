"""Where the outside is: a host is looked up, every address of it is judged, and the connection goes to the address that
was judged. Nothing of our own network can be reached under a name from outside, whatever a name server answers.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

import httpx2

Look = Callable[[str, int], list[str]]
_EMBEDS = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 behind a translator: judged as the IPv4 address it stands for."""


class NotPublic(httpx2.ConnectError):
    """The host is, or may lead to, an address that is not of the public internet."""


def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the resolver says."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"{host} cannot be looked up: {type(error).__name__}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, and no other one in disguise."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _EMBEDS:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.scope_id is not None or found.is_site_local:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


def placed(look: Look = look_up) -> Callable[[str, int], str]:
    """Gives the address to connect to. Raises NotPublic when any address of the host is not public."""

    def place(host: str, port: int) -> str:
        found = look(host, port)
        if not found or not all(map(is_public, found)):
            raise NotPublic(f"{host} does not lead to the public internet alone")
        return found[0]

    return place
