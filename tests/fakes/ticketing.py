"""A trigger as a third party would ship it: one module that knows the protocols of `triggers.adapter` and no more."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from triggers.adapter import Delivery, Received, Unverified
from triggers.problem import Problem
from triggers.source import json_of


class Tickets:
    """Ticketing signs `time + body` and sends `time digest` in one header."""

    def __init__(self, options: Mapping[str, Any], secrets: tuple[str, ...]) -> None:
        self._kind, self._secrets = options.get("kind", "ticket"), secrets

    def verify(self, received: Received) -> str:
        """Which secret it was."""
        stamp, _, digest = received.only("X-Tickets").partition(" ")
        if abs((received.at - self.time(received)).total_seconds()) > 300:
            raise Unverified("The time in X-Tickets is more than 300 s from ours.")
        for index, secret in enumerate(self._secrets):
            expected = hmac.digest(secret.encode(), stamp.encode() + received.raw, "sha256").hex()
            if hmac.compare_digest(expected.encode(), digest.encode("utf-8", "surrogatepass")):
                return f"tickets#{index}"
        raise Unverified("X-Tickets does not match the body.")

    def time(self, received: Received) -> datetime:
        """When it was signed."""
        stamp = received.header("X-Tickets").partition(" ")[0]
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 12):
            raise Unverified("X-Tickets begins with whole Unix seconds.")
        return datetime.fromtimestamp(int(stamp), UTC)

    def translate(self, received: Received) -> Delivery:
        """A ticket and what happened to it."""
        said = json_of(received)
        if not isinstance(said, dict) or not isinstance(said.get("ticket"), int):
            raise Problem(400, "No ticket", 'Name the ticket by its number, as in {"ticket": 7}.')
        what = str(said.get("what", "changed"))[:100] or "changed"
        return Delivery(f"{what}:{said['ticket']}"[:255], f"{self._kind}.{what}", said)
