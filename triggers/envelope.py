"""What a trigger hands on, and what it is told: the only two values between the outside and the intake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Arrived:
    """Something from outside, verified and translated, not yet matched to any agent.

    `key` is the sender's name of this delivery: the same key from the same source is the same fact. `payload` has
    passed the text gate (`cleaned` code points were changed); `raw` holds the bytes as they came. `headers` have
    lower-case names and no credentials. `conversation` names what it belongs to, `proof` what showed who sent it.
    With `ignore`, a reason in a word, it is kept and opens nothing.
    """

    tenant: str
    source: str
    key: str
    type: str
    payload: Any
    raw: bytes
    headers: dict[str, str]
    sender: str | None
    conversation: str | None
    proof: str
    cleaned: int = 0
    ignore: str = ""


Outcome = Literal["accepted", "duplicate", "ignored", "failed"]
"""A failed delivery is stored and can be mapped again; its sender is answered as an ignored one is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an arrival, true after the commit. `reason` is fit for the sender's eyes."""

    outcome: Outcome
    reason: str = ""
    task_id: str | None = None


Accept = Callable[[Arrived], Verdict]
"""Stores the arrival in one transaction and returns after the commit; any exception means that nothing was stored."""
