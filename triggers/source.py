"""What deliveries say about themselves: key, type, sender, conversation, from headers and JSON pointers, as data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from twelvefold.errors import DeclarationError
from twelvefold.text import clean, one_line

from .adapter import Delivery, Received, Source
from .body import parse
from .problem import Problem
from .proofs import Signed
from .schemes import GITHUB
from .signature import Scheme

POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_LONGEST_NAME = 255
_THREADS = ("issue", "pull_request", "discussion")


@dataclass(frozen=True, slots=True)
class GitHubEvents:
    """Events of GitHub: the type is `event.action`, the conversation the issue, pull request or discussion."""

    def translate(self, received: Received) -> Delivery:
        """What it says. Raises Problem 400."""
        payload = json_of(received)
        if not isinstance(payload, dict):
            raise Problem(400, "Not an event of GitHub", "The body of an event of GitHub is a JSON object.")
        key = key_of(received.header("x-github-delivery"), "the header X-GitHub-Delivery")
        event = received.header("x-github-event")
        if not event:
            raise Problem(
                400, "No event name", "GitHub names the event in the header X-GitHub-Event, such as `release`."
            )
        action = payload.get("action")
        return Delivery(
            key=key, type=one_line(f"{event}.{action}" if isinstance(action, str) else event, _LONGEST_NAME),
            payload=payload, sender=text_of(at("/sender/login", payload)), conversation=_thread(payload),
            ignore="ping" if event == "ping" else "",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pointed:
    """JSON in which key, type, sender and conversation stand at JSON pointers (RFC 6901) or in headers.

    Of `key_headers` the first that is there names the delivery; `A+B` are two that name it together. Without any named
    key the key is the hash of the body; without a named type it is `default_type`. What `action_pointer` points to is
    added to the type. Where `live_pointer` points to false the delivery is a test, which is ignored.
    """

    key_headers: tuple[str, ...] = ()
    key_pointer: str | None = None
    type_header: str | None = None
    type_pointer: str | None = None
    action_pointer: str | None = None
    default_type: str = "event"
    sender_pointer: str | None = None
    conversation_pointer: str | None = None
    live_pointer: str | None = None

    def __post_init__(self) -> None:
        for pointer in (self.key_pointer, self.type_pointer, self.sender_pointer, self.conversation_pointer):
            if pointer and not POINTER.fullmatch(pointer):
                raise DeclarationError(f"{pointer!r} is no JSON pointer. Write it like /data/order/id.")

    def translate(self, received: Received) -> Delivery:
        """What it says. Raises Problem 400."""
        payload = json_of(received)

        def pointed(pointer: str | None) -> str | None:
            return None if pointer is None else text_of(at(pointer, payload))

        named = text_of(received.header(self.type_header)) if self.type_header else None
        kind, action = named or pointed(self.type_pointer) or self.default_type, pointed(self.action_pointer)
        test = self.live_pointer is not None and at(self.live_pointer, payload) is False
        return Delivery(
            key=self._key(received, payload), type=f"{kind}.{action}"[:_LONGEST_NAME] if action else kind,
            payload=payload, sender=pointed(self.sender_pointer), conversation=pointed(self.conversation_pointer),
            ignore="test_mode" if test else "",
        )  # fmt: skip

    def _key(self, received: Received, payload: Any) -> str:
        for names in self.key_headers:
            given = [received.header(name) for name in names.split("+")]
            if all(given):
                return key_of(" ".join(given), f"the header {names}")
        if self.key_pointer is not None:
            return key_of(at(self.key_pointer, payload), f"the member {self.key_pointer} of the body")
        if self.key_headers:
            raise _no_key(f"the header {self.key_headers[0]}")
        return body_key(received.source, received.raw)


def github(tenant: str, secrets: tuple[str, ...]) -> Source:
    """The webhooks of GitHub. `secrets` are all that are active, the newest first; without one nothing is let in."""
    return Source(tenant, Signed("github", secrets, (GITHUB,)), GitHubEvents())


def generic(tenant: str, secrets: tuple[str, ...], scheme: Scheme, names: Pointed | None = None) -> Source:
    """The webhooks of any other sender that signs with an HMAC."""
    return Source(tenant, Signed("generic", secrets, (scheme,)), names or Pointed())


def json_of(received: Received) -> Any:
    """The JSON value that was sent. Raises Problem 400, 413 or 415."""
    return parse(received.body, received.header("content-type") or "application/json")


def body_key(label: str, body: bytes) -> str:
    """The key of a delivery that names none: the hash of its bytes, of its own for each source."""
    return hashlib.sha256(b"generic\0" + label.encode() + b"\0" + body).hexdigest()


def at(pointer: str, value: Any) -> Any:
    """What a JSON pointer points to, or None."""
    for step in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(step.replace("~1", "/").replace("~0", "~"))
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _thread(payload: dict[str, Any]) -> str | None:
    """The issue, pull request or discussion that a payload is about, such as `octo/hello#7`."""
    repository = at("/repository/full_name", payload)
    numbers = (at(f"/{name}/number", payload) for name in _THREADS)
    number = next((number for number in numbers if isinstance(number, int)), None)
    return None if repository is None or number is None else text_of(f"{repository}#{number}")


def key_of(value: Any, where: str) -> str:
    """A key exactly as the sender wrote it: shortening or cleaning it could make two deliveries one."""
    key = "" if isinstance(value, bool) or not isinstance(value, str | int) else str(value)
    if not key or len(key) > _LONGEST_NAME or clean(key) != key:
        raise _no_key(where)
    return key


def text_of(value: Any) -> str | None:
    """A string or a number as one line, None for anything else and for nothing."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return one_line(str(value), _LONGEST_NAME) or None


def _no_key(where: str) -> Problem:
    return Problem(
        400,
        "No delivery id",
        f"Name each delivery in {where}: 1 to {_LONGEST_NAME} visible characters, the same at every attempt to "
        "deliver it, so that a repeated delivery is not done twice.",
    )
