"""Values that are signed for one purpose and fit into an address: `v1.<payload>.<mac>`, both base64url.

The mac is an HMAC-SHA256 over the purpose, the version and the payload as it is written, so no byte of a token can be
changed, and a token of one purpose says nothing for another. The first key signs, all of them verify.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)
VERSION = "v1"
_SHAPE = re.compile(rf"{VERSION}\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


def payload(value: BaseModel) -> str:
    """The value as it stands in a token."""
    return _b64(value.model_dump_json().encode())


def token(keys: Sequence[bytes], purpose: str, value: BaseModel) -> str:
    """The token of a value."""
    written = payload(value)
    return f"{VERSION}.{written}.{mac(keys[0], purpose, written)}"


def read(keys: Sequence[bytes], purpose: str, kind: type[M], text: str, longest: int) -> M | None:
    """The value of a token of at most `longest` characters; None for any other text."""
    found = _SHAPE.fullmatch(text) if len(text) <= longest else None
    written, given = found.groups() if found else ("", "")
    # every key is tried, so that the time taken tells nothing
    if not sum(hmac.compare_digest(mac(key, purpose, written), given) for key in keys):
        return None
    try:
        return kind.model_validate_json(urlsafe_b64decode(written + "=" * (-len(written) % 4)))
    except ValueError:
        return None


def mac(key: bytes, purpose: str, written: str) -> str:
    """The signature of a payload as it stands in the token."""
    return _b64(hmac.digest(key, f"{purpose}\0{VERSION}\0{written}".encode(), "sha256"))


def _b64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
