"""What a trigger is made of: something that proves who sent a request, and something that says what is in it.

Two protocols, so that a sender of anybody's is added without a change here: see `docs/webhooks.md` and `kit.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from twelvefold.errors import DeclarationError, TwelvefoldError

from .body import inflate

if TYPE_CHECKING:  # reading mail takes libraries that not everybody installs
    from .inbound import Posted


class Unverified(TwelvefoldError):
    """Who sent this is not proved; `reason` says what was expected, never a secret or a digest. `challenge` is what the
    answer says in WWW-Authenticate.
    """

    def __init__(self, reason: str, challenge: str = "Signature") -> None:
        super().__init__(reason)
        self.reason, self.challenge = reason, challenge


@dataclass(frozen=True, slots=True)
class Received:
    """One request: its bytes as they came, every pair of its headers with names in any case, and when (aware)."""

    source: str
    raw: bytes
    headers: tuple[tuple[str, str], ...]
    at: datetime
    limit: int = 5_000_000

    def header(self, name: str) -> str:
        """The value of a header, empty where it is not there. Of several the first."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def only(self, name: str) -> str:
        """The value of a header that is there exactly once: two readers could believe different ones of two. Raises
        Unverified.
        """
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        if len(values) != 1:
            raise Unverified(f"The header {name} must be there exactly once, not {len(values)} times.")
        return values[0]

    @property
    def body(self) -> bytes:
        """The bytes without their Content-Encoding. Raises Problem 413, 400 or 415."""
        return inflate(self.raw, self.header("content-encoding"), self.limit)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a request says: the sender's name of it, its type, JSON data, and who and what it is about where that is
    known. The same `key` from the same source is the same fact, at every attempt to deliver it. With `ignore`, a reason
    in a word such as `test_mode`, it is kept and opens nothing.
    """

    key: str
    type: str
    payload: Any
    sender: str | None = None
    conversation: str | None = None
    ignore: str = ""


class Verifier(Protocol):
    """Proves who sent a request, over `received.raw`, before anything is parsed."""

    def verify(self, received: Received) -> str:
        """What proved it, with which of the active secrets, such as `hmac:stripe#0`. Raises Unverified."""


class Translator(Protocol):
    """Says what is in a request that is proved. Touches no database, broker, model or network."""

    def translate(self, received: Received) -> Delivery:
        """What it says. Raises Problem with a status of 4xx that teaches the sender."""


class Adapter(Verifier, Translator, Protocol):
    """Both in one, as an entry point of the group `twelvefold.triggers` makes it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One address under `/hooks/`: whose it is, and its two halves. `max_body` in bytes, where it differs from that of
    all; `refusal` is the status that makes this sender stop trying, in the place of a 4xx. A provider of mail has, in
    the place of a translator, `mails`: what was sent to whom.
    """

    tenant: str
    verifier: Verifier
    translator: Translator | None
    max_body: int | None = None
    refusal: int | None = None
    mails: Callable[[Received], list[Posted]] | None = None


def check_secrets(secrets: tuple[str, ...]) -> None:
    """Raise DeclarationError where a secret is missing or empty."""
    if not secrets or not all(secrets):
        raise DeclarationError(
            "A webhook source needs at least one secret, and an empty one is an open door. "
            "Give the secret that the sender signs with, and both of them while it is being rotated."
        )
