"""Ids that sort by time: UUID version 7 (RFC 9562, section 5.7)."""

from __future__ import annotations

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, then random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
