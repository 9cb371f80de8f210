"""What a mail may cost before a parser sees it: one pass over the bytes, linear in their number.

A parser of MIME takes seconds for a mail of many parts or of deep ones. So their boundaries and headers are counted
first, and a mail with too many is refused whole: no part of it is looked at.
"""

from __future__ import annotations

import re

MOST_BYTES = 25_000_000
MOST_PARTS = 500
MOST_HEADER_BYTES = 200_000
MOST_HEADERS = 500
LONGEST_HEADER = 20_000
_BOUNDARY = re.compile(rb"""boundary(\*[0-9]*\*?)?[ \t]*=[ \t\r\n]*(?:"([^"\r\n]*)"|([^\s;"]+))""", re.IGNORECASE)
_DELIMITER = re.compile(rb"^--([^\r\n]*)", re.MULTILINE)
_CONTENT_TYPE = re.compile(rb"^content-type[ \t]*:", re.MULTILINE | re.IGNORECASE)
_END_OF_HEADERS = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_HEADER = re.compile(rb"^[^\s:][^\r\n]*(?:\r?\n[ \t][^\r\n]*)*", re.MULTILINE)


class Excessive(Exception):
    """The mail is refused unread. The text says which limit it exceeds, and nothing of the mail."""


def check(raw: bytes, most_bytes: int = MOST_BYTES) -> None:
    """Raise Excessive for a mail that is too long, has too many or too long headers, or too many parts."""
    if len(raw) > most_bytes:
        raise Excessive(f"The mail is over {most_bytes} bytes.")
    end = _END_OF_HEADERS.search(raw)
    head = raw[: end.start()] if end else raw
    if len(head) > MOST_HEADER_BYTES:
        raise Excessive(f"The headers of the mail are over {MOST_HEADER_BYTES} bytes.")
    _check_headers(head)
    if _parts(raw) > MOST_PARTS:
        raise Excessive(f"The mail has over {MOST_PARTS} parts.")


def _check_headers(head: bytes) -> None:
    headers = [len(found[0]) for found in _HEADER.finditer(head)]
    if len(headers) > MOST_HEADERS:
        raise Excessive(f"The mail has over {MOST_HEADERS} headers.")
    if headers and max(headers) > LONGEST_HEADER:
        raise Excessive(f"A header of the mail is over {LONGEST_HEADER} bytes.")


def _parts(raw: bytes) -> int:
    """The number of parts, or more: what might begin a part counts as one."""
    declared, continued = set(), False
    for found in _BOUNDARY.finditer(raw):
        continued = continued or found[1] is not None
        declared.add((found[2] if found[2] is not None else found[3]).rstrip())
        if len(declared) > MOST_PARTS:
            return len(declared)
    typed = sum(1 for _ in _CONTENT_TYPE.finditer(raw))
    # a boundary that is written in pieces (RFC 2231) is not put together here: then every line with dashes counts
    lines = (found[1].rstrip() for found in _DELIMITER.finditer(raw))
    return max(typed, sum(1 for line in lines if continued or line in declared))
