"""The ways in which a sender proves itself: a signature, a secret in a header, or a name and password."""

from __future__ import annotations

import base64
import hmac
from binascii import Error as NotBase64
from dataclasses import dataclass, field

from .adapter import Received, Unverified, check_secrets
from .signature import Scheme, verify


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature. Of several schemes, which are the same under other names, the one whose header is there counts.

    `secrets` are all that are active, the newest first; `name` stands in the proof.
    """

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    schemes: tuple[Scheme, ...]

    def __post_init__(self) -> None:
        check_secrets(self.secrets)
        for secret in self.secrets:
            self.schemes[0].check_secret(secret)

    def verify(self, received: Received) -> str:
        """Such as `hmac:github#0`. Raises Unverified."""
        scheme = next((s for s in self.schemes if received.header(s.header)), self.schemes[0])
        secrets = [secret.encode() for secret in self.secrets]
        index = verify(scheme, secrets, received.headers, received.raw, received.at)
        public = scheme.algorithm == "ecdsa" or (scheme.decoded and secrets[index].startswith(b"whpk_"))
        return f"{'key' if public else 'hmac'}:{self.name}#{index}"


@dataclass(frozen=True, slots=True)
class Token:
    """The secret itself in a header, as GitLab's older webhooks send it: proves the sender and nothing of the body."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    header: str

    def __post_init__(self) -> None:
        check_secrets(self.secrets)

    def verify(self, received: Received) -> str:
        """Such as `token:gitlab#0`. Raises Unverified."""
        index = _same(self.secrets, received.only(self.header))
        if index is None:
            raise Unverified(f"The header {self.header} is not the secret that is set up here.")
        return f"token:{self.name}#{index}"


@dataclass(frozen=True, slots=True)
class Basic:
    """HTTP Basic: each secret is `name:password`, as it stands in the address that the sender was given."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        check_secrets(self.secrets)

    def verify(self, received: Received) -> str:
        """Such as `basic:postmark#0`. Raises Unverified."""
        scheme, _, credentials = received.only("Authorization").partition(" ")
        try:
            given = base64.b64decode(credentials.strip(), validate=True).decode()
        except (NotBase64, ValueError):
            given = ""
        index = _same(self.secrets, given) if scheme.lower() == "basic" else None
        if index is None:
            raise Unverified(
                "Send name and password by HTTP Basic: https://name:password@host/hooks/source.", 'Basic realm="hooks"'
            )
        return f"basic:{self.name}#{index}"


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several ways whose header is there, as GitLab signs or sends its token."""

    ways: tuple[Signed | Token | Basic, ...]

    def verify(self, received: Received) -> str:
        """What the way that applies says. Raises Unverified."""
        for way in self.ways[:-1]:
            schemes = way.schemes if isinstance(way, Signed) else ()
            if any(received.header(scheme.header) for scheme in schemes):
                return way.verify(received)
        return self.ways[-1].verify(received)


def _same(secrets: tuple[str, ...], given: str) -> int | None:
    """Which secret it is, in constant time."""
    same = [hmac.compare_digest(secret.encode(), given.encode("utf-8", "surrogatepass")) for secret in secrets]
    return same.index(True) if any(same) else None
