"""Which commit a checkout stands at, read from its files: the deployed tree need not have git installed."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def checked_out(root: Path) -> str:
    """The commit of the tree at `root`; empty where it is no checkout."""
    try:
        place = root / ".git"
        if place.is_file():  # a worktree names its own folder in the checkout it belongs to
            place = root / place.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        shared = place / "commondir"
        top = place / shared.read_text(encoding="utf-8").strip() if shared.is_file() else place
        head = (place / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref:"):
            head = _named(place, top, head.removeprefix("ref:").strip())
    except (OSError, UnicodeDecodeError):
        return ""
    return head if _COMMIT.fullmatch(head) else ""


def _named(place: Path, top: Path, name: str) -> str:
    for folder in (place, top):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    lines = (top / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
