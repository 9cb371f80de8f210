"""Senders of webhooks, declared as data: whose they are, how they sign, and where their facts carry which name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from twelvefold.errors import DeclarationError
from twelvefold.text import clean, one_line

from .declared import POINTER
from .problem import Problem
from .signature import GITHUB, Scheme

_LONGEST_NAME = 255
_THREADS = ("issue", "pull_request", "discussion")


@dataclass(frozen=True, slots=True)
class GitHub:
    """Webhooks of GitHub. `secrets` are all that are active, the newest first; without one nothing is let in."""

    tenant: str
    secrets: tuple[str, ...] = field(repr=False)
    scheme: Scheme = GITHUB

    def __post_init__(self) -> None:
        _check_secrets(self.secrets)


@dataclass(frozen=True, slots=True)
class Generic:
    """Webhooks of any other sender that signs with an HMAC.

    Key, type, sender and conversation come from a header or from a JSON pointer (RFC 6901) into the body. Without a
    named key the key is the hash of the body; without a named type the type is `default_type`.
    """

    tenant: str
    secrets: tuple[str, ...] = field(repr=False)
    scheme: Scheme
    key_header: str | None = None
    key_pointer: str | None = None
    type_header: str | None = None
    type_pointer: str | None = None
    default_type: str = "event"
    sender_pointer: str | None = None
    conversation_pointer: str | None = None

    def __post_init__(self) -> None:
        _check_secrets(self.secrets)
        for pointer in (self.key_pointer, self.type_pointer, self.sender_pointer, self.conversation_pointer):
            if pointer and not POINTER.fullmatch(pointer):
                raise DeclarationError(f"{pointer!r} is no JSON pointer. Write it like /data/order/id.")


Source = GitHub | Generic


@dataclass(frozen=True, slots=True)
class Names:
    """How one delivery is called: its key, its type, and who and what it is about where that is known."""

    key: str
    type: str
    sender: str | None = None
    conversation: str | None = None


def kind(source: Source) -> str:
    """The name of the scheme as it stands in a proof, such as `github`."""
    return type(source).__name__.lower()


def names(source: Source, label: str, headers: Mapping[str, str], payload: Any, body: bytes) -> Names:
    """The names of a verified delivery; `label` is the source's own name. Raises Problem 400 when one is missing."""
    match source:
        case GitHub():
            return _github(headers, payload)
        case Generic():
            return _generic(source, label, headers, payload, body)
        case _:
            assert_never(source)


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


def _check_secrets(secrets: tuple[str, ...]) -> None:
    if not secrets or not all(secrets):
        raise DeclarationError(
            "A webhook source needs at least one secret, and an empty one is an open door. "
            "Give the secret that the sender signs with, and both of them while it is being rotated."
        )


def _github(headers: Mapping[str, str], payload: Any) -> Names:
    if not isinstance(payload, dict):
        raise Problem(400, "Not an event of GitHub", "The body of an event of GitHub is a JSON object.")
    key = _key(headers.get("x-github-delivery"), "the header X-GitHub-Delivery")
    event = headers.get("x-github-event")
    if not event:
        raise Problem(400, "No event name", "GitHub names the event in the header X-GitHub-Event, such as `release`.")
    action = payload.get("action")
    return Names(
        key=key,
        type=one_line(f"{event}.{action}" if isinstance(action, str) else event, _LONGEST_NAME),
        sender=_text(at("/sender/login", payload)),
        conversation=_thread(payload),
    )


def _thread(payload: dict[str, Any]) -> str | None:
    """The issue, pull request or discussion that a payload is about, such as `octo/hello#7`."""
    repository = at("/repository/full_name", payload)
    numbers = (at(f"/{name}/number", payload) for name in _THREADS)
    number = next((number for number in numbers if isinstance(number, int)), None)
    return None if repository is None or number is None else _text(f"{repository}#{number}")


def _generic(source: Generic, label: str, headers: Mapping[str, str], payload: Any, body: bytes) -> Names:
    def pointed(pointer: str | None) -> str | None:
        return None if pointer is None else _text(at(pointer, payload))

    if source.key_header is not None:
        key = _key(headers.get(source.key_header.lower()), f"the header {source.key_header}")
    elif source.key_pointer is not None:
        key = _key(at(source.key_pointer, payload), f"the member {source.key_pointer} of the body")
    else:
        key = body_key(label, body)
    named = headers.get(source.type_header.lower()) if source.type_header else None
    return Names(
        key=key,
        type=_text(named) or pointed(source.type_pointer) or source.default_type,
        sender=pointed(source.sender_pointer),
        conversation=pointed(source.conversation_pointer),
    )


def _key(value: Any, where: str) -> str:
    """A key exactly as the sender wrote it: shortening or cleaning it could make two deliveries one."""
    key = "" if isinstance(value, bool) or not isinstance(value, str | int) else str(value)
    if not key or len(key) > _LONGEST_NAME or clean(key) != key:
        raise Problem(
            400,
            "No delivery id",
            f"Name each delivery in {where}: 1 to {_LONGEST_NAME} visible characters, the same at every attempt to "
            "deliver it, so that a repeated delivery is not done twice.",
        )
    return key


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return one_line(str(value), _LONGEST_NAME) or None
