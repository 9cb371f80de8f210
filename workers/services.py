"""Services of our own network that an agent's tools reach by name: `http://pipeline/…`, and the operator says where.

A declaration names its services among `hosts=`; TWELVEFOLD_SERVICES, such as `pipeline=http://10.0.0.5:8080/v2`, places
them. So an agent reads no environment, and its log and its prompt hold no address of ours.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from httpx2 import URL, InvalidURL
from pydantic import BeforeValidator

NAME = re.compile(r"[a-z][a-z0-9-]*")


def parse(value: Any) -> Any:
    """`name=URL` pairs, separated by commas, as a mapping. Raises ValueError that names the pair that is wrong."""
    if not isinstance(value, str):
        return value
    pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
    for name, _, address in pairs:
        if not (NAME.fullmatch(name) and _is_place(address)):
            raise ValueError(
                f"{name!r} is not NAME=URL. Example: pipeline=http://10.0.0.5:8080,stock=https://stock/api"
            )
    return {name: address for name, _, address in pairs}


def _is_place(address: str) -> bool:
    try:
        url = URL(address)
    except InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not (url.query or url.fragment or url.userinfo)


Services = Annotated[dict[str, str], BeforeValidator(parse)]
"""Where each service stands, by name."""


def placed(url: URL, services: dict[str, str]) -> URL:
    """The address behind a URL whose host is the name of a service; any other URL as it is."""
    place = services.get(url.host)
    if place is None:
        return url
    there = URL(place)
    path = there.raw_path.rstrip(b"/") + url.raw_path
    return there.copy_with(raw_path=path)
