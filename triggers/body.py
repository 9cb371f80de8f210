"""The bytes of a request, and strict JSON out of them: hostile bodies end in a 4xx, never in a 500.

Size is capped while reading, whatever Content-Length claims. JSON is UTF-8 (RFC 8259) with unique keys, finite
numbers and at most 64 levels; fractions become Decimal, so that an amount survives as it was written.
"""

from __future__ import annotations

import json
import zlib
from decimal import Decimal, InvalidOperation
from email.message import Message
from typing import Any, NoReturn

from starlette.requests import Request

from .problem import Problem

DEPTH = 64
_DIGITS = 400  # more than any double has; a number of thousands of digits is an attack on int() and on the database
_LARGEST_EXPONENT = 308


async def read(request: Request, limit: int) -> bytes:
    """The whole body, at most `limit` bytes. Raises Problem 413 as soon as it is known to be longer."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > limit:
        raise _too_large(limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def inflate(raw: bytes, encoding: str, limit: int) -> bytes:
    """The body without its Content-Encoding, at most `limit` bytes; Problem 413, 400, or 415 if not gzip."""
    if encoding.strip().lower() in ("", "identity"):
        return raw
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise Problem(415, "Unknown content encoding", "Send the body as it is, or with Content-Encoding: gzip.")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        body = unpacking.decompress(raw, limit + 1)
    except zlib.error:
        body = b""
    if len(body) > limit:
        raise _too_large(limit)
    if not unpacking.eof or unpacking.unused_data:
        raise Problem(400, "Broken gzip", "The body is not one whole gzip stream, although Content-Encoding says so.")
    return body


def parse(body: bytes, content_type: str) -> Any:
    """The JSON value in the body. Raises Problem 400 that says what is wrong with it and where."""
    kind = Message()
    kind["content-type"] = content_type
    charset = kind.get_content_charset("utf-8")
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise _malformed("JSON is sent as UTF-8, and Content-Type names another charset.")
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_int=_whole,
            parse_float=_fraction,
            parse_constant=_not_finite,
            object_pairs_hook=_unique,
        )
    except UnicodeDecodeError as error:
        raise _malformed(f"The body is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}.{_hint(kind)}") from None
    except RecursionError:
        raise _too_deep() from None
    if _deeper_than(value, DEPTH):
        raise _too_deep()
    return value


def _too_large(limit: int) -> Problem:
    return Problem(413, "Body too large", f"At most {limit} bytes are taken here. Send less, or a link to the content.")


def _malformed(detail: str) -> Problem:
    return Problem(400, "Not strict JSON", detail)


def _too_deep() -> Problem:
    return _malformed(f"The value is nested more than {DEPTH} levels deep.")


def _hint(kind: Message) -> str:
    if kind.get_content_maintype() != "application" or kind.get_content_subtype() != "x-www-form-urlencoded":
        return ""
    return " The body is a form; set the sender's content type to application/json."


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise _malformed(f"A number has more than {_DIGITS} digits.")
    return int(text)


def _fraction(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("Infinity")
    if len(text) > _DIGITS or not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise _malformed("A number is beyond what other readers of JSON can hold.")
    return number


def _not_finite(name: str) -> NoReturn:
    raise _malformed(f"{name} is not a number of JSON. Send null or leave the member out.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _malformed("An object has the same key twice, and two readers could believe different ones.")
    return members


def _deeper_than(value: Any, levels: int) -> bool:
    here = [value]
    for _ in range(levels):
        here = [child for each in here for child in _children(each)]
        if not here:
            return False
    return any(isinstance(each, dict | list) for each in here)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
