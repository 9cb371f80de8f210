"""The channel of last resort: one line says that a letter would have gone out, and nothing of what it says."""

from __future__ import annotations

from collections.abc import Callable

from twelvefold.ports import Letter, Receipt
from twelvefold.text import one_line


class LogChannel:
    """Writes a line for each letter: its id, its channel and its masked recipient, never its subject or text."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def push(self, letter: Letter) -> Receipt:
        """Write the line; the receipt's reference is the letter's id."""
        self._write(one_line(f"letter {letter.id} channel={letter.channel} to={masked(letter.recipient)}"))
        return Receipt(reference=letter.id, detail="logged")


def masked(recipient: str) -> str:
    """`a***@example.com` for an address, `#***` for any other recipient: enough to recognise, not enough to use."""
    name, at, domain = recipient.rpartition("@")
    return f"{(name if at else recipient)[:1]}***{at}{domain if at else ''}"
