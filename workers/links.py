"""The links in mails that ask: signed, bound to one approver of one question, and the word that only the mail holds.

A token is signed as `signed.py` has it. The first secret signs, all of them verify: put a new one in front, and drop
the old one when its links may die. Nothing about a link is stored; what it may do is a matter of the row it names.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from . import signed
from .settings import Settings

PURPOSE = "approval-link"
PATH = "/a/"
ANSWER_PATH = "/a/q/"
"""Of a question that is to be answered. A link shows nothing under the other path: each looks for rows of its kind."""
LONGEST = 4096
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no word means anything, and no digits to take for letters."""
WORD_LENGTH = 6


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
        return f"{self.url}{path}{signed.token(self._keys, PURPOSE, link)}"

    def word(self, link: Link) -> str:
        """The word that goes into the mail beside the address and is never shown on the page."""
        return _word(self._keys[0], signed.payload(link))

    def knows(self, link: Link, word: str) -> bool:
        """Whether this is the link's word, in capitals or not."""
        typed, payload = word.strip().upper().encode(), signed.payload(link)
        # every key is tried, so that the time taken tells nothing
        return sum(hmac.compare_digest(_word(key, payload).encode(), typed) for key in self._keys) > 0

    def read(self, token: str) -> Link:
        """The link of a token, perhaps expired. Raises NotALink for any other text."""
        link = signed.read(self._keys, PURPOSE, Link, token, LONGEST)
        if link is None:
            raise NotALink
        return link


def from_settings(settings: Settings) -> Links | None:
    """The links of this installation; None where no public address or no secret is set."""
    if settings.public_url is None or not settings.link_secrets:
        return None
    return Links(settings.public_url, [secret.get_secret_value() for secret in settings.link_secrets])


def _word(key: bytes, payload: str) -> str:
    digest = hmac.new(key, f"approval-word\0{signed.VERSION}\0{payload}".encode(), hashlib.sha256).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:WORD_LENGTH])
