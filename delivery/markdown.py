"""Markdown, the one source of what a letter says: written here from our words and other people's text, and read here
for every form that it goes out in. The emitters (`plain`, `html`, `mrkdwn`) walk the tree that `tree` gives.

No HTML is ever passed on, no picture is fetched, and only links of the web and of mail are links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from twelvefold.text import clean

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_TILDES = re.compile(r"~+")
_LINE_ENDS = re.compile(r"\r\n?|[\u2028\u2029\x85\x0b\x0c]")
LINKS = ("http", "https", "mailto")


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


def tree(source: str) -> SyntaxTreeNode:
    """The source as a tree of blocks and text."""
    return SyntaxTreeNode(_reader().parse(clean(source)))


def target(href: object) -> str | None:
    """The address of a link that may be one; None for any other, such as `javascript:` or `slack:`."""
    address = str(href)
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme.lower() not in LINKS or re.search(r"[\s<>\"'|\\`^{}\x00-\x20\x7f-\uffff]", address):
        return None
    return address if parts.hostname or (parts.scheme == "mailto" and "@" in parts.path) else None


def host(address: str) -> str:
    """Where a link really leads: its host, or the address of a mail."""
    parts = urlsplit(address)
    return parts.path if parts.scheme == "mailto" else parts.netloc.rpartition("@")[2]


def words(text: str) -> str:
    """Any text as Markdown that reads as exactly this text, on one line."""
    line = " ".join(clean(text).split())
    return _PUNCTUATION.sub(r"\\\1", line)


def fenced(text: str) -> str:
    """Any text as a block that is shown letter by letter; nothing in it is Markdown, and nothing ends it early."""
    text = _LINE_ENDS.sub("\n", text)
    fence = "~" * (max([2, *(len(run) for run in _TILDES.findall(text))]) + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for, each on one line."""
    return "\n".join(f"- **{words(name)}:** {words(text)}" for name, text in rows)


def link(label: str, address: str) -> str:
    """A link of ours."""
    return f"[{words(label)}](<{address}>)"


def joined(parts: Iterable[str]) -> str:
    """Blocks one after the other; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"
