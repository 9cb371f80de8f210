"""Pages of a text that is too long to be shown whole; each is cut where a reader would not stumble, and none is lost.

Pages are counted from the beginning of the text by a rule that depends on the text alone, so that page 2 is the same
whoever asks for it and when.
"""

from __future__ import annotations

from .markup import escape
from .text import cut_at
from .tokens import tokens_of

PAGE_TOKENS = 1_800
MOST_CHARS = 6
"""No page has more characters for each of its tokens."""


def fits(text: str, most: int) -> bool:
    """Whether the text has at most so many tokens once it is escaped."""
    return 3 * len(text) <= most or (len(text) <= MOST_CHARS * most and tokens_of(escape(text)) <= most)


def page(text: str, number: int, most: int = PAGE_TOKENS) -> tuple[str, int] | None:
    """A page of the text, counted from 1, and how many characters come after it. None when there is no such page."""
    start = 0
    for _ in range(number - 1):
        if start >= len(text):
            return None
        start = _end(text, start, most)
    if start >= len(text) and number > 1:
        return None
    end = _end(text, start, most)
    return text[start:end], len(text) - end


def _end(text: str, start: int, most: int) -> int:
    size = min(len(text) - start, MOST_CHARS * most)
    while size > 1 and (tokens := tokens_of(escape(text[start : start + size]))) > most:
        size = min(size - 1, size * most // tokens)
    end = start + max(size, 1)
    if end >= len(text):
        return len(text)
    line = text.rfind("\n", start + size // 2, end)
    return line + 1 if line > 0 else max(cut_at(text, end), start + 1)
