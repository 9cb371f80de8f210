"""The address in a digest by which its reader gets no more of them: signed, so that it speaks for one reader alone.

It does not expire: whoever finds an old digest may still leave. Nothing about it is stored.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from pydantic import BaseModel, ConfigDict, ValidationError

from .settings import Settings

PATH = "/u/"
_TOKEN = re.compile(r"v1\.([A-Za-z0-9_-]{1,2000})\.([A-Za-z0-9_-]{1,100})")


class Reader(BaseModel):
    """Whose digests of which agent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    agent: str
    recipient: str


def address(settings: Settings, reader: Reader) -> str | None:
    """Where this reader leaves; None where no public address or no secret is set."""
    if settings.public_url is None or not settings.link_secrets:
        return None
    payload = _b64(reader.model_dump_json().encode())
    mac = _mac(settings.link_secrets[0].get_secret_value(), payload)
    return f"{settings.public_url.rstrip('/')}{PATH}v1.{payload}.{mac}"


def read(settings: Settings, token: str) -> Reader | None:
    """The reader of a token; None for any other text."""
    found = _TOKEN.fullmatch(token)
    payload, given = found.groups() if found else ("", "")
    made = [_mac(secret.get_secret_value(), payload) for secret in settings.link_secrets]
    # every key is tried, so that the time taken tells nothing
    if not payload or not sum(hmac.compare_digest(each, given) for each in made):
        return None
    try:
        return Reader.model_validate_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, ValidationError):
        return None


def _mac(key: str, payload: str) -> str:
    return _b64(hmac.digest(key.encode(), f"unsubscribe\0v1\0{payload}".encode(), "sha256"))


def _b64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
