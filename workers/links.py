"""The links in mails that ask: signed, bound to one approver of one question, and the word that only the mail holds.

A token is `v1.<payload>.<mac>`, both base64url; the mac is an HMAC-SHA256 over the purpose, the version and the payload
as it is written, so no byte of a token can be changed. The first secret signs, all of them verify: put a new one in
front, and drop the old one when its links may die. Nothing about a link is stored; what it may do is a matter of the
row it names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict, ValidationError

from .settings import Settings

VERSION = "v1"
PATH = "/a/"
ANSWER_PATH = "/a/q/"
"""Of a question that is to be answered. A link shows nothing under the other path: each looks for rows of its kind."""
LONGEST = 4096
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no word means anything, and no digits to take for letters."""
WORD_LENGTH = 6
_SHAPE = re.compile(r"v1\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


class NotALink(Exception):
    """The token was not made with any of our secrets."""


class Link(BaseModel):
    """Who may decide what: one approver of one question. `asked` is the seq of its event, `expires` Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    task: str
    call: int
    asked: int
    approver: str
    expires: int

    def expired(self, now: datetime) -> bool:
        """Whether the link is too old to tell anything."""
        return now.timestamp() >= self.expires


class Links:
    """Makes and reads links below one public address. `secrets`: the first signs, all verify."""

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        self.url = url.rstrip("/")
        self._keys = [secret.encode() for secret in secrets]

    def address(self, link: Link, path: str = PATH) -> str:
        """The address to put into a mail."""
        payload = _payload(link)
        return f"{self.url}{path}{VERSION}.{payload}.{mac(self._keys[0], payload)}"

    def word(self, link: Link) -> str:
        """The word that goes into the mail beside the address and is never shown on the page."""
        return _word(self._keys[0], _payload(link))

    def knows(self, link: Link, word: str) -> bool:
        """Whether this is the link's word, in capitals or not."""
        typed, payload = word.strip().upper().encode(), _payload(link)
        # every key is tried, so that the time taken tells nothing
        return sum(hmac.compare_digest(_word(key, payload).encode(), typed) for key in self._keys) > 0

    def read(self, token: str) -> Link:
        """The link of a token, perhaps expired. Raises NotALink for any other text."""
        found = _SHAPE.fullmatch(token) if len(token) <= LONGEST else None
        payload, given = found.groups() if found else ("", "")
        if not sum(hmac.compare_digest(mac(key, payload), given) for key in self._keys):
            raise NotALink
        try:
            return Link.model_validate_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (ValueError, ValidationError):
            raise NotALink from None


def from_settings(settings: Settings) -> Links | None:
    """The links of this installation; None where no public address or no secret is set."""
    if settings.public_url is None or not settings.link_secrets:
        return None
    return Links(settings.public_url, [secret.get_secret_value() for secret in settings.link_secrets])


def mac(key: bytes, payload: str) -> str:
    """The signature of a payload as it stands in the token."""
    return _b64(hmac.digest(key, f"approval-link\0{VERSION}\0{payload}".encode(), "sha256"))


def _payload(link: Link) -> str:
    return _b64(link.model_dump_json().encode())


def _word(key: bytes, payload: str) -> str:
    digest = hmac.new(key, f"approval-word\0{VERSION}\0{payload}".encode(), hashlib.sha256).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:WORD_LENGTH])


def _b64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
