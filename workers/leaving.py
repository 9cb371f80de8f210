"""The address in a digest by which its reader gets no more of them: signed, so that it speaks for one reader alone.

It does not expire: whoever finds an old digest may still leave. Nothing about it is stored.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from . import signed
from .settings import Settings

PATH = "/u/"
PURPOSE = "unsubscribe"
LONGEST = 2_047
"""Of a token: a payload of 2,000 characters."""


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
    return f"{settings.public_url.rstrip('/')}{PATH}{signed.token(_keys(settings), PURPOSE, reader)}"


def read(settings: Settings, token: str) -> Reader | None:
    """The reader of a token; None for any other text."""
    return signed.read(_keys(settings), PURPOSE, Reader, token, LONGEST)


def _keys(settings: Settings) -> list[bytes]:
    return [secret.get_secret_value().encode() for secret in settings.link_secrets]
