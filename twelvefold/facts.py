"""Facts: ids, numbers and links that stand in a value, as tokens that can be looked up by index.

A token is kept as it is written, so that it can be shown again; a number is kept as its value, so that 12, 12.00 and
12,00 are one. Plain words are no tokens, except under a name such as `order_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from .canonical import sha256

MOST_FACTS = 1_000
"""So many tokens of one event are kept; `MORE` stands for those that are not."""
MORE = "…"
MOST_DIGITS = 25
LONGEST = 100
"""A longer token is kept as its hash."""
ID_NAME = re.compile(r"(?:^|_)(?:ids?|uuids?|key|keys|ref|refs|reference)$|_numbers?$")
"""Names of what identifies something: id, order_id, order_ids, uuid, api_key, ref, reference, order_number."""

_LINK = re.compile(r"https?://[^\s<>\"'\])}]+", re.IGNORECASE)
_RUN = re.compile(r"[^\W_](?:[\w.:/@#+~-]*[^\W_])?")
_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.@+~-]*[A-Za-z0-9])?")
_JOINED = re.compile(r"[\d_./@:#-]")
NUMBER = r"\d[\d.,'\u2019\u202f\xa0]{0,40}"
"""A written number. Its length is bounded, so that no text costs the square of its own."""
_NUMBER = re.compile(rf"(?<![\w.,]){NUMBER}(?!\w)")
_SPACED = re.compile(r"['\u2019\u202f\xa0]")


def tokens_in(value: Any, name: str = "") -> Iterator[str]:
    """Every token of a JSON value, `name` being that of the field it stands in. May repeat itself."""
    if isinstance(value, str):
        yield from _in_text(value, name)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | Decimal):
        yield from keys(str(value))
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from tokens_in(member, key)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tokens_in(item, name)


def keys(text: str) -> list[str]:
    """Under which tokens a single value is found: itself, and as a number where it is one."""
    text = text.strip()
    found = [text if len(text) <= LONGEST else sha256(text)[:40]] if text else []
    return list(dict.fromkeys([*found, *numbers(text)])) if text[:1].isdigit() else found


def links(text: str) -> list[str]:
    """The links in a text, without the punctuation behind them."""
    return [found.rstrip(".,;:!?") for found in _LINK.findall(text)]


def runs(text: str) -> list[str]:
    """What could be ids in a text: runs of letters, digits and what joins them, such as `ord_81f2`."""
    return [run for run in _RUN.findall(text) if _JOINED.search(run)]


def numbers(text: str) -> list[str]:
    """The values that a written number can have: 1.234 is 1234 or 1.234, 1.234,50 is 1234.5; none for 1.4.2."""
    text = _SPACED.sub("", text).rstrip(".,").lstrip("-")
    digits = text.replace(".", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > MOST_DIGITS:
        return []
    if digits == text:
        return [_plain(text)]
    last = max(text.rfind("."), text.rfind(","))
    whole, mark, rest = text[:last], text[last], text[last + 1 :]
    grouped = re.split("[.,]", whole)
    if any(len(group) != 3 for group in grouped[1:]) or (mark in whole and len(rest) != 3):
        return []
    joined = "".join(grouped)
    if len(rest) == 3 and (mark in whole or len(grouped) == 1):
        return [_plain(joined + rest)] if mark in whole else [_plain(joined + rest), _plain(f"{joined}.{rest}")]
    return [_plain(f"{joined}.{rest}")]


def _plain(text: str) -> str:
    value = Decimal(text)
    return str(value.quantize(Decimal(1)) if value == value.to_integral_value() else value.normalize())


def _in_text(text: str, name: str) -> Iterator[str]:
    if len(text) <= LONGEST and "\n" not in text and ID_NAME.search(name):
        yield from keys(text)
    if not _JOINED.search(text):
        return  # words alone, which most texts are
    for link in links(text) if "://" in text else ():
        yield from keys(link)
    for run in runs(text):
        yield from keys(run)
        if "/" in run or ":" in run or "#" in run or not run.isascii():
            for part in _PART.findall(run):
                if _JOINED.search(part):
                    yield from keys(part)
    for number in _NUMBER.findall(text):
        yield from numbers(number)
