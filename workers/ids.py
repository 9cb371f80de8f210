"""Ids that sort by time: UUID version 7 (RFC 9562, section 5.7), with a fraction of the millisecond (section 6.2)."""

from __future__ import annotations

import os
import time
from uuid import UUID

MILLISECOND = 1_000_000


def uuid7() -> UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, 12 of their fraction, random bits. What opens tasks one after the
    other opens them in the order of their ids, a quarter of a microsecond being enough between two.
    """
    ms, rest = divmod(time.time_ns(), MILLISECOND)
    chance = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=ms << 80 | 0x7 << 76 | rest * 4096 // MILLISECOND << 64 | 0x2 << 62 | chance)
