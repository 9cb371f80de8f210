"""One request as the handlers read it, and what they give back: who asks, what is in the body, how long to wait."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from triggers.body import inflate, parse
from twelvefold.text import clean, inspect_json
from workers.store import tokens
from workers.store.database import Database
from workers.store.tokens import Token

from .problems import bad, no_thread, no_token, unfit

MOST_BODY = 1_000_000
"""Bytes. A larger thing belongs where the agent can look it up."""
LONGEST_WAIT_S = 60.0
_SECRET = re.compile(r"tf_[A-Za-z0-9_-]{43}")
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request. `body` has passed the text gate, which changed `cleaned` code points; `raw` are its
    bytes without compression; `wait` is for how many seconds the caller wants to wait.
    """

    token: Token
    path: dict[str, Any]
    query: dict[str, str]
    key: str | None
    wait: float
    body: Any = None
    raw: bytes = b""
    cleaned: int = 0

    @property
    def thread(self) -> str:
        """The id in the path. Raises Problem 404 for what is none."""
        try:
            return str(UUID(self.path["id"]))
        except ValueError:
            raise no_thread() from None

    def asks(self, model: type[M]) -> M:
        """The query as this model. Raises Problem 400 that names each parameter that is wrong."""
        if any(clean(text) != text for text in (*self.query, *self.query.values())):
            raise bad("Unusable query", "Parameters hold visible characters only.")
        try:
            return model.model_validate(self.query)
        except ValidationError as error:
            raise unfit("The query does not fit", error) from None

    def read(self, model: type[M]) -> M:
        """The body as this model. Raises Problem 400 that names each member that is wrong, never its value."""
        try:
            return model.model_validate(self.body)
        except ValidationError as error:
            raise unfit("The body does not fit", error) from None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a thread does because of a request: its events after the seq `after`."""

    thread: str
    after: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; with a `turn` to the end of which the caller may wait."""

    status: int
    document: dict[str, Any]
    turn: Turn | None = None


def known(db: Database, given: list[str]) -> Token:
    """Whose token it is. Raises Problem 401."""
    if not given:
        raise no_token()
    scheme, _, secret = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not _SECRET.fullmatch(secret.strip()):
        raise no_token("invalid_request")
    token = tokens.find(db, secret.strip())
    if token is None:
        raise no_token("invalid_token")
    return token


def opened(call: Call, sent: bytes, encoding: str, kind: str) -> Call:
    """The call with its body: strict JSON, an object, through the text gate."""
    raw = inflate(sent, encoding, MOST_BODY)
    value = parse(raw, kind) if raw else {}
    if not isinstance(value, dict):
        raise bad("Not an object", 'The body is a JSON object, such as {"message": "..."}.')
    gate = inspect_json(value)
    return replace(call, body=gate.value, raw=raw, cleaned=gate.changed)


def idempotency_key(given: list[str]) -> str | None:
    """The Idempotency-Key: 1 to 255 visible ASCII characters."""
    if not given:
        return None
    if len(given) > 1 or not re.fullmatch(r"[!-~]{1,255}", given[0]):
        raise bad(
            "Unusable Idempotency-Key",
            "Send the header once, with 1 to 255 visible ASCII characters without spaces, the same at every attempt.",
        )
    return given[0]


def wait_for(given: str | None, default: float) -> float:
    """Seconds to wait. Raises Problem 400."""
    if given is None:
        return default
    if not _SECONDS.fullmatch(given) or float(given) > LONGEST_WAIT_S:
        raise bad("Unusable wait", f"`wait` is a number of seconds from 0 to {LONGEST_WAIT_S:g}, such as ?wait=20.")
    return float(given)
