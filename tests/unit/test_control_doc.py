"""The map of elements and decisions names things and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import twelvefold

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
ROWS = [row for row in TEXT.splitlines() if row.startswith("| ") and not row.startswith(("| element", "| decision"))]


def test_every_element_and_decision_is_held_by_a_test_that_exists() -> None:
    assert len(ROWS) == 14
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row)
        assert named and all(f"def {name}(" in written for name in named), row


def test_every_name_of_the_map_is_one_of_ours() -> None:
    names = set(re.findall(r"`([A-Z]\w+)`", TEXT))
    assert names and names <= set(twelvefold.__all__)
