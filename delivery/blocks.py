"""Slack messages from Markdown: blocks within every limit, in as many messages as it takes, and nothing cut unsaid.

Text is split at line ends where there are any, code is closed and opened again, and no entity, link or character is
broken in two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from twelvefold.text import shorten

from .mrkdwn import blocks, escaped

Block = dict[str, Any]
SECTION = 2_900
"""Characters of one section; Slack's limit is 3,000."""
MESSAGE = 10_000
"""Characters of one message as JSON, without its buttons: Slack refuses somewhere above 11,000."""
BLOCKS = 45
TEXT = 3_500
_UNBROKEN = re.compile(r"<[^<>]{1,2000}>|&(?:amp|lt|gt);|[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)
BUTTONS = (("approve", "Approve", "primary"), ("reject", "Reject", "danger"))


def messages(source: str) -> list[list[Block]]:
    """The letter as messages of blocks, in order."""
    found: list[list[Block]] = []
    left = 0
    for text in _pieces(source):
        block = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
        size = len(json.dumps(block))
        if not found or left < size or len(found[-1]) == BLOCKS:
            found.append([])
            left = MESSAGE
        left -= size
        found[-1].append(block)
    return found or [[]]


def buttons(letter_id: str, what: str) -> Block:
    """What decides: each button carries the letter's id and the choice, and asks back before it is sent."""
    asks = _plain(shorten(what, 300) or "?")
    return {"type": "actions", "block_id": letter_id, "elements": [
        {"type": "button", "action_id": choice, "style": style, "text": _plain(label), "value": f"{letter_id}:{choice}",
         "confirm": {"title": _plain(f"{label}?"), "text": asks, "confirm": _plain(label), "deny": _plain("Back")}}
        for choice, label, style in BUTTONS
    ]}  # fmt: skip


def texts(text: str) -> list[str]:
    """The same as bare texts, for when Slack takes no blocks."""
    return list(split(escaped(text), TEXT)) or [" "]


def split(text: str, most: int) -> Iterator[str]:
    """The text in pieces of at most `most` characters, at line ends where there are any."""
    piece = ""
    for line in text.splitlines(keepends=True):
        for part in [line] if len(line) <= most else _broken(line, most):
            if len(piece) + len(part) > most:
                yield piece
                piece = ""
            piece += part
    if piece:
        yield piece


def _pieces(source: str) -> Iterator[str]:
    """Texts of sections, in order; short ones that belong together in one."""
    held = ""
    for kind, text in blocks(source):
        parts = [f"```\n{part}\n```" for part in _fenced(text)] if kind == "code" else list(split(text, SECTION))
        for part in filter(str.strip, parts):
            if held and len(held) + len(part) + 2 <= SECTION:
                held = f"{held}\n\n{part}"
            else:
                yield from [held] if held else []
                held = part
    yield from [held] if held else []


def _fenced(text: str) -> Iterator[str]:
    for part in split(text, SECTION - 10):
        yield part.removesuffix("\n") or " "


def _broken(line: str, most: int) -> Iterator[str]:
    piece = ""
    for found in _UNBROKEN.finditer(line):
        if len(piece) + len(found[0]) > most:
            yield piece
            piece = ""
        piece += found[0]
    if piece:
        yield piece


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text}
