"""An event in its place, and how one is stored: `revive` reads one back, `event_hash` is sha256(salt, data)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import JsonValue, ValidationError

from .canonical import sha256
from .errors import Unreadable
from .events import TYPES, Event


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event in its place: seq counts from 1 in its task, at is the database's time."""

    seq: int
    at: datetime
    event: Event


def revive(type_name: str, version: int, data: Any) -> Event:
    """The stored event as today's class. Raises Unreadable for what this code does not know."""
    kind = TYPES.get(type_name)
    if kind is None or version > kind.version:
        raise Unreadable(
            f"Event {type_name} version {version} is newer than this code. Deploy newer code; the task waits."
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise Unreadable(
            f"Event {type_name} version {version} does not read: {error.error_count()} field(s)."
        ) from None


def hold(events: Sequence[Event]) -> JsonValue:
    """Events as plain data, for `Quarantined.held`; `unhold` gives them back."""
    return [[type(e).__name__, e.version, e.model_dump(mode="json", exclude_defaults=True)] for e in events]


def unhold(held: Any) -> list[Event]:
    """The events in a `Quarantined.held`."""
    return [revive(name, version, data) for name, version, data in held or ()]


def event_hash(salt: str, data: str) -> str:
    """The hash of stored data; with data and salt deleted it still stands, and tells nothing."""
    return sha256(salt, data)
