"""A channel as a third party would ship it: one module that knows `twelvefold.ports` and no more. It pages by writing a
file for each letter into a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twelvefold.ports import Letter, NotSent, PerhapsSent, Receipt
from twelvefold.text import clean


class Pager:
    """Pages whoever has a folder."""

    def __init__(self, options: Mapping[str, Any], secret: str) -> None:
        self._folder, self._secret = Path(options["folder"]), secret

    def push(self, letter: Letter) -> Receipt:
        """Write the page."""
        box = self._folder / letter.recipient
        if not letter.recipient.isalnum() or not box.is_dir():
            raise NotSent("there is no such pager", retry=False)
        for name, retry in (("refuse", False), ("busy", True)):
            if (self._folder / f"{name}.flag").exists():
                (self._folder / f"{name}.flag").unlink()
                raise NotSent(name, retry=retry)
        page = box / f"{letter.id}.txt"
        page.write_text(clean(f"{letter.subject}\n\n{letter.text}"), encoding="utf-8")
        if (self._folder / "lose.flag").exists():
            (self._folder / "lose.flag").unlink()
            raise PerhapsSent("lost")
        return Receipt(str(page))

    def find(self, letter: Letter) -> Receipt | None:
        """Look for the page."""
        page = self._folder / letter.recipient / f"{letter.id}.txt"
        return Receipt(str(page)) if page.exists() else None
