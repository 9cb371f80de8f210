"""What somebody wrote themselves in a reply, apart from what they quote, and whether it is clear which is which.

Our own letters begin with a marker, which no language and no mail program changes; only without it the quote is
guessed. Nothing may be decided by words of which it is not clear who wrote them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from twelvefold.text import MARKER

LONGEST = 200_000
_LONGEST_LINE = 2_000
_QUOTED = re.compile(r"\s*>")
_APPROVE = frozenset({"yes", "approve", "approved"})
_REJECT = frozenset({"no", "reject", "rejected", "deny", "denied"})


@dataclass(frozen=True, slots=True)
class Own:
    """The sender's own words. `clear`: they stand on top, alone, and all below them is quoted."""

    text: str
    clear: bool


def own_words(text: str, *, reply: bool) -> Own:
    """The words above and between quotes. A mail that answers nothing is all its sender's, a forwarded one too."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")[:LONGEST].split("\n")
    at = next((place for place, line in enumerate(lines) if MARKER in line), None)
    if at is not None:
        return _around_marker(lines, at)
    if not reply:
        return Own("\n".join(lines).strip(), clear=True)
    found = _unwrapped("\n".join(lines))
    if found is None:
        return _between(lines)
    top, bottom = found.get("text_top", ""), found.get("text_bottom", "")
    mixed = _between(lines)
    if top and not bottom and (mixed.clear or found.get("type") == "forward"):
        return Own(top, clear=True)
    return Own("\n\n".join(filter(None, (top, bottom))) or mixed.text, clear=False)


def decision(own: Own) -> Literal["approved", "rejected"] | None:
    """What an answer decides: one word on top and nothing else but a signature. All else decides nothing."""
    if not own.clear:
        return None
    said = re.split(r"(?m)^--[ ]?$", own.text, maxsplit=1)[0].strip()
    word = said.rstrip(".!").casefold()
    return "approved" if word in _APPROVE else "rejected" if word in _REJECT else None


def _around_marker(lines: list[str], at: int) -> Own:
    above = _without_introduction(lines[:at])
    quoted = _QUOTED.match(lines[at]) is not None
    below = [line for line in lines[at + 1 :] if line.strip() and not _QUOTED.match(line)] if quoted else []
    if above:
        return Own("\n\n".join(filter(None, (above, "\n".join(below)))), clear=not below)
    # answered below our text, or between its lines: where those are not marked, nobody can tell them apart
    return Own("\n".join(below) if quoted else "\n".join(lines).strip(), clear=False)


def _without_introduction(lines: list[str]) -> str:
    """The lines without the program's own words about what it quotes, such as `On Monday Ann wrote:`."""
    kept = [line for line in lines if not _QUOTED.match(line)]
    text = "\n".join(kept).strip()
    for quote in ("\n> a\n> b\n> c", "\n\na\n"):
        found = _unwrapped(text + quote)
        if found is not None:
            return found.get("text_top", "").strip()
    return text


def _between(lines: list[str]) -> Own:
    """Without any introduction: what is not marked as quoted. Own lines below a quote make it unclear."""
    first = next((place for place, line in enumerate(lines) if _QUOTED.match(line)), len(lines))
    below = [line for line in lines[first:] if line.strip() and not _QUOTED.match(line)]
    own = "\n".join(line for line in lines if not _QUOTED.match(line)).strip()
    return Own(own or "\n".join(lines).strip(), clear=not below and bool("".join(lines[:first]).strip()))


def _unwrapped(text: str) -> dict[str, str] | None:
    import quotequail  # of the group mail-in

    if max(map(len, text.split("\n")), default=0) > _LONGEST_LINE:
        return None  # its patterns take their time on long lines
    found: dict[str, str] | None = quotequail.unwrap(text)
    return found
