"""HMAC signatures of incoming requests, declared as data: which header, which bytes, which encoding, how old.

Verified over the raw bytes before anything is parsed, in constant time, against every active secret, so that a
secret can be rotated without losing a request. The clock is handed in. (Rules: RFC 2104, GitHub's and Slack's
published schemes.)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from twelvefold.errors import DeclarationError, TwelvefoldError

_SECONDS = re.compile(r"[0-9]{1,12}")


class Unverified(TwelvefoldError):
    """The signature could not be verified; `reason` says what was expected, never a secret or a digest."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a sender signs.

    `header` carries `prefix` and then the digest. `signed` is what is signed, with `{body}` and `{timestamp}` in it;
    the timestamp is the one in `timestamp_header`, in whole Unix seconds, at most `window` seconds old and at most
    `ahead` seconds in the future.
    """

    header: str
    prefix: str = ""
    algorithm: Literal["sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: str | None = None
    signed: str = "{body}"
    window: int = 300
    ahead: int = 300

    def __post_init__(self) -> None:
        expected = ["body"] if self.timestamp_header is None else ["body", "timestamp"]
        if sorted(re.findall(r"\{(\w*)\}", self.signed)) != expected:
            raise DeclarationError(
                f"A signature scheme with timestamp_header={self.timestamp_header!r} cannot sign {self.signed!r}. "
                "Name {body} once, and {timestamp} once exactly if there is a timestamp header: a timestamp that is "
                "not signed protects from nothing. Example: signed='{timestamp}.{body}'."
            )


GITHUB = Scheme(header="X-Hub-Signature-256", prefix="sha256=")
"""As GitHub signs: lower-case hex over the body, no timestamp; a replay is caught by the delivery id."""


def sign(scheme: Scheme, secret: bytes, body: bytes, timestamp: str = "") -> str:
    """The value of the signature header for this body: prefix and digest."""
    before, after = scheme.signed.replace("{timestamp}", timestamp).split("{body}")
    digest = hmac.digest(secret, before.encode() + body + after.encode(), getattr(hashlib, scheme.algorithm))
    return scheme.prefix + (digest.hex() if scheme.encoding == "hex" else base64.b64encode(digest).decode())


def verify(
    scheme: Scheme, secrets: Sequence[bytes], headers: Iterable[tuple[str, str]], body: bytes, now: datetime
) -> int:
    """The index of the secret that signed this body. Raises Unverified.

    `headers` are all pairs of the request, names in any case: a signature given twice is refused, since two readers
    could believe different ones. `now` is an aware time.
    """
    received = list(headers)
    given = _only(received, scheme.header)
    timestamp = "" if scheme.timestamp_header is None else _only(received, scheme.timestamp_header)
    if scheme.timestamp_header is not None and not _SECONDS.fullmatch(timestamp):
        raise Unverified(f"The header {scheme.timestamp_header} must be whole Unix seconds, such as 1700000000.")
    matched = [
        index
        for index, secret in enumerate(secrets)
        if secret
        and hmac.compare_digest(sign(scheme, secret, body, timestamp).encode(), given.encode("utf-8", "surrogatepass"))
    ]
    if not matched:
        raise Unverified(
            f"The header {scheme.header} does not match the body. Sign the exact bytes sent with "
            f"HMAC-{scheme.algorithm.upper()} over {scheme.signed}, written as {scheme.prefix}<{scheme.encoding}>, and "
            "check that both sides hold the same secret."
        )
    if scheme.timestamp_header is not None:
        _check_window(scheme, int(timestamp), now)
    return matched[0]


def _only(headers: list[tuple[str, str]], name: str) -> str:
    values = [value for key, value in headers if key.lower() == name.lower()]
    if len(values) != 1:
        raise Unverified(f"The header {name} must be there exactly once, not {len(values)} times.")
    return values[0]


def _check_window(scheme: Scheme, timestamp: int, now: datetime) -> None:
    age = now.timestamp() - timestamp
    if age > scheme.window or age < -scheme.ahead:
        raise Unverified(
            f"The header {scheme.timestamp_header} is {abs(age):.0f} s {'old' if age > 0 else 'ahead'}. At most "
            f"{scheme.window} s old or {scheme.ahead} s ahead is accepted: sign each attempt anew, by a true clock."
        )
