"""The addresses that letters are answered at and bounce to: signed, so that only one whom we wrote to knows them.

`agent+<letter>.<mac>@in.example.com` goes into Reply-To, `bounce+<letter>.<mac>@…` into MAIL FROM. A letter
is named by the id of its row in the outbox, so an answer is known to be about that very question and no later one. The
mac of a reply address is bound to its recipient. Mail software may change the case of an address: all of it is lower
case, and read in any case. The first secret signs, all verify; where no domain or no secret is set there are none.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from typing import Literal

from .settings import Settings

REPLIES, BOUNCES = "agent", "bounce"
LONGEST_LOCAL = 64
_MAC_BYTES = 10


@dataclass(frozen=True, slots=True)
class Token:
    """What a reply address carries: the letter it is an answer to, and the mac that shows who got that letter."""

    letter: str
    mac: str = field(repr=False)

    def given_to(self, settings: Settings, recipient: str) -> bool:
        """Whether this token was made for this recipient; False for every forgery."""
        return _verified(settings, "reply", self.mac, self.letter, recipient.lower())


def reply_address(settings: Settings, letter: str, recipient: str) -> str | None:
    """Where `recipient` answers the letter with this id; None where no mail can come in."""
    return _address(settings, REPLIES, "reply", letter, recipient.lower())


def bounce_address(settings: Settings, letter: str) -> str | None:
    """Where the letter comes back to when it cannot be delivered, for MAIL FROM alone; None where no mail comes in."""
    return _address(settings, BOUNCES, "bounce", letter)


def reply_token(settings: Settings, address: str) -> Token | None:
    """The token in an address, not yet verified; None where the address is none that we make."""
    found = _parts(settings, REPLIES, address)
    return None if found is None else Token(*found)


def read_reply(settings: Settings, address: str, sender: str) -> str | Literal[False] | None:
    """The letter that `sender` answers by writing to this address. False: the token was not given to this sender, or is
    forged; None: it is no address of a reply.
    """
    token = reply_token(settings, address)
    if token is None:
        return None
    return token.letter if token.given_to(settings, sender) else False


def read_bounce(settings: Settings, address: str) -> str | None:
    """The letter that came back to this address; None for one that we did not make."""
    letter, mac = _parts(settings, BOUNCES, address) or ("", "")
    return letter if letter and _verified(settings, "bounce", mac, letter) else None


def _address(settings: Settings, local: str, *signed: str) -> str | None:
    if settings.mail_in_domain is None or not settings.link_secrets:
        return None
    token = f"{signed[1].lower()}.{_mac(settings.link_secrets[0].get_secret_value(), *signed)}"
    address = f"{local}{settings.mail_in_separator}{token}"
    if len(address) > LONGEST_LOCAL:
        raise ValueError(f"{address!r} is longer than the {LONGEST_LOCAL} characters that a local part may have.")
    return f"{address}@{settings.mail_in_domain}"


def _parts(settings: Settings, local: str, address: str) -> tuple[str, str] | None:
    name, _, domain = address.strip().strip("<>").lower().rpartition("@")
    prefix = f"{local}{settings.mail_in_separator}"
    letter, dot, mac = name.removeprefix(prefix).rpartition(".")
    if settings.mail_in_domain is None or domain != settings.mail_in_domain or not name.startswith(prefix):
        return None
    return (letter, mac) if dot and letter and mac else None


def _verified(settings: Settings, purpose: str, mac: str, *signed: str) -> bool:
    # every key is tried, so that the time taken tells nothing
    made = [_mac(secret.get_secret_value(), purpose, *signed) for secret in settings.link_secrets]
    return sum(hmac.compare_digest(each.encode(), mac.encode()) for each in made) > 0


def _mac(key: str, *signed: str) -> str:
    digest = hmac.digest(key.encode(), "\0".join(signed).encode(), "sha256")
    return base64.b32encode(digest[:_MAC_BYTES]).decode().lower()
