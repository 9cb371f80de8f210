"""Public failures that this project has to survive: each that belongs to what is built has a test of its name."""

import ast
import re
from pathlib import Path

from .tree import ROOT

FIRST_ISSUE = [
    *(f"{n:02}" for n in (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26)),
    *(f"{n:02}" for n in (53, 54, 56, 57, 58, 60, 61, 62, 64, 146, 148)),
]
PEOPLE = [*(f"{n}" for n in (89, 90, 92, 93, 94, 96, 97, 98, 100, 101, 102, 149))]
"""Questions, approvals and text that nobody vouches for."""


CLOCKS = [*(f"{n}" for n in (28, 29, 30, 32, 34, 35, 36, 37, 38, 40, 41, 42))]
"""Delays, schedules and clocks. Number 33 is proved with 32."""


def _tests() -> list[str]:
    names = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        names += [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_b")]
    return names


def test_every_public_failure_has_its_test():
    proved = {found[1] for name in _tests() if (found := re.match(r"test_b(\d+)_", name))}
    assert not [number for number in [*FIRST_ISSUE, *PEOPLE, *CLOCKS] if number not in proved]
    assert (len(FIRST_ISSUE), len(PEOPLE), len(CLOCKS)) == (31, 12, 12)
