"""One text for one value: canonical JSON, hashes over it, and the digest that binds an approval to a call.

Keys sorted, no spaces, Decimal and date as string, floats refused: the text read back hashes to the same
value, which a JSON column that re-orders keys or rewrites numbers could not promise.
"""

from __future__ import annotations

import hashlib
import json
from datetime import date
from decimal import Decimal
from typing import Any

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plain(value: Any) -> Any:
    """The value with only str, int, bool, None, list and dict in it. Raises TypeError for a float or anything else."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {_key(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(
        f"{type(value).__name__} has no canonical form. Use str, int, bool, Decimal, date, list or dict; "
        "a float loses digits on its way through JSON, so write Decimal('0.1') instead of 0.1."
    )


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"A key must be a string, not {type(key).__name__}.")
    return key


def canonical(value: Any) -> str:
    """Canonical JSON of a value of str, int, bool, None, Decimal, date, list and dict."""
    return _CANONICAL.encode(plain(value))


def sha256(*parts: str) -> str:
    """Hex SHA-256 over the parts, separated so that ("ab", "c") and ("a", "bc") differ."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def call_digest(task_id: str, seq: int, tool: str, args: str, verdict: str, preview: str = "") -> str:
    """What an approval is bound to: this call, these arguments, this preview and verdict, in this task."""
    return sha256("call", task_id, str(seq), tool, args, preview, verdict)
