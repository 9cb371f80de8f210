"""Signatures of incoming requests, declared as data: which header, which bytes, which encoding, how old.

Verified over the raw bytes before anything is parsed, in constant time, against every active secret, so that a
secret can be rotated without losing a request. The clock is handed in. (Rules: RFC 2104, Standard Webhooks, and the
published schemes of GitHub, Stripe, Slack and SendGrid; `schemes.py` has them as values.)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from twelvefold.errors import DeclarationError

from . import public_keys
from .adapter import Received, Unverified

_SECONDS = re.compile(r"[0-9]{1,12}")
_ID = re.compile(r"[^.\s]{1,255}")
ENCODED = "whsec_"
"""What a secret of Standard Webhooks begins with; base64 of the key follows."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a sender signs.

    `header` carries `prefix` and then the digest; with `layout="list"` several of them with blanks between, with
    `layout="pairs"` pairs such as `t=1700000000,v1=<digest>`, of which `t` is the time. `signed` is what is signed: it
    names `{body}`, `{timestamp}` where there is a time, in whole Unix seconds, and `{id}` where there is `id_header`.
    At most `window` seconds old and at most `ahead` seconds in the future is accepted. With `decoded`, a secret that
    begins with `whsec_` is base64, and one that begins with `whpk_` a public key for the digests marked `v1a,`.
    """

    header: str
    prefix: str = ""
    algorithm: Literal["sha256", "sha512", "ecdsa"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: str | None = None
    signed: str = "{body}"
    window: int = 300
    ahead: int = 300
    id_header: str | None = None
    layout: Literal["one", "list", "pairs"] = "one"
    decoded: bool = False

    @property
    def stamped(self) -> bool:
        """Whether the signature covers a time."""
        return self.timestamp_header is not None or self.layout == "pairs"

    def __post_init__(self) -> None:
        expected = ["body", *["id"] * bool(self.id_header), *["timestamp"] * self.stamped]
        if sorted(re.findall(r"\{(\w*)\}", self.signed)) != expected:
            raise DeclarationError(
                f"A signature scheme with timestamp_header={self.timestamp_header!r} cannot sign {self.signed!r}. "
                "Name {body} once, and {timestamp} once exactly if there is a timestamp header: a timestamp that is "
                "not signed protects from nothing. Example: signed='{timestamp}.{body}'."
            )

    def check_secret(self, secret: str) -> None:
        """Raise DeclarationError for a secret that this scheme cannot verify with."""
        if self.algorithm == "ecdsa" or (self.decoded and secret.startswith(public_keys.ED25519)):
            public_keys.check(secret)
        elif self.decoded and secret.startswith(ENCODED):
            try:
                base64.b64decode(secret.removeprefix(ENCODED), validate=True)
            except (NotBase64, ValueError):
                raise DeclarationError("After whsec_ a secret is base64; copy it whole from the sender.") from None


def sign(scheme: Scheme, secret: bytes, body: bytes, timestamp: str = "", id: str = "") -> str:
    """One signature for this body with a shared secret: prefix and digest."""
    key = base64.b64decode(secret[len(ENCODED) :]) if _encoded(scheme, secret) else secret
    message = _message(scheme, body, timestamp, id)
    digest = hmac.digest(key, message, getattr(hashlib, scheme.algorithm))
    return scheme.prefix + (digest.hex() if scheme.encoding == "hex" else base64.b64encode(digest).decode())


def verify(
    scheme: Scheme, secrets: Sequence[bytes], headers: Iterable[tuple[str, str]], body: bytes, now: datetime
) -> int:
    """The index of the secret that signed this body. Raises Unverified.

    `headers` are all pairs of the request, names in any case: a signature given twice is refused, since two readers
    could believe different ones. `now` is an aware time.
    """
    received = Received("", body, tuple(headers), now)
    given, timestamp = _given(scheme, received)
    if scheme.stamped and not _SECONDS.fullmatch(timestamp):
        raise Unverified(f"{_time(scheme)} must be whole Unix seconds, such as 1700000000.")
    id = "" if scheme.id_header is None else received.only(scheme.id_header)
    if scheme.id_header is not None and not _ID.fullmatch(id):
        raise Unverified(f"The header {scheme.id_header} must be an id without blanks and dots.")
    matched = [
        index for index, secret in enumerate(secrets) if secret and _proves(scheme, secret, given, body, timestamp, id)
    ]
    if not matched:
        raise Unverified(
            f"The header {scheme.header} does not match the body. Sign the exact bytes sent with "
            f"{scheme.algorithm.upper()} over {scheme.signed}, written as {scheme.prefix}<{scheme.encoding}>, and "
            "check that both sides hold the same secret."
        )
    if scheme.stamped:
        _check_window(scheme, int(timestamp), now)
    return matched[0]


def _given(scheme: Scheme, received: Received) -> tuple[list[str], str]:
    """The signatures in the header, and the time that is signed with them, both as written."""
    value = received.only(scheme.header)
    if scheme.layout == "pairs":
        pairs = [part.strip().partition("=") for part in value.split(",")]
        times = [time for name, _, time in pairs if name == "t"]
        return [f"{name}={digest}" for name, _, digest in pairs], times[0] if len(times) == 1 else ""
    timestamp = "" if scheme.timestamp_header is None else received.only(scheme.timestamp_header)
    return value.split(" ") if scheme.layout == "list" else [value], timestamp


def _proves(scheme: Scheme, secret: bytes, given: list[str], body: bytes, timestamp: str, id: str) -> bool:
    if scheme.algorithm == "ecdsa":
        return any(public_keys.ecdsa(secret.decode(), one, _message(scheme, body, timestamp, id)) for one in given)
    if scheme.decoded and secret.startswith(public_keys.ED25519.encode()):
        message, ours = _message(scheme, body, timestamp, id), [one[4:] for one in given if one.startswith("v1a,")]
        return any(public_keys.ed25519(secret.decode(), one, message) for one in ours)
    expected = sign(scheme, secret, body, timestamp, id).encode()
    return any([hmac.compare_digest(expected, one.encode("utf-8", "surrogatepass")) for one in given])


def _message(scheme: Scheme, body: bytes, timestamp: str, id: str) -> bytes:
    before, after = scheme.signed.replace("{timestamp}", timestamp).replace("{id}", id).split("{body}")
    return before.encode("utf-8", "surrogatepass") + body + after.encode("utf-8", "surrogatepass")


def _encoded(scheme: Scheme, secret: bytes) -> bool:
    return scheme.decoded and secret.startswith(ENCODED.encode())


def _time(scheme: Scheme) -> str:
    return f"The header {scheme.timestamp_header}" if scheme.timestamp_header else f"The t in {scheme.header}"


def _check_window(scheme: Scheme, timestamp: int, now: datetime) -> None:
    age = now.timestamp() - timestamp
    if age > scheme.window or age < -scheme.ahead:
        raise Unverified(
            f"{_time(scheme)} is {abs(age):.0f} s {'old' if age > 0 else 'ahead'}. At most "
            f"{scheme.window} s old or {scheme.ahead} s ahead is accepted: sign each attempt anew, by a true clock."
        )
