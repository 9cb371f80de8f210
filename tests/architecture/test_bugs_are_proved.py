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
CONTEXT = ["77", "78"]
"""Windows and what is too long for them."""

HOOKS = [*(f"{n}" for n in (104, 105, 106, 108, 109, 110, 112, 113, 114, 116, 118, 120, 125, 128))]
"""Webhooks and Slack, the way in."""
MODEL = [*(f"{n}" for n in (72, 73, 74, 76, 80, 81, 82, 84, 85, 86))]
"""The model's client, its limits and its replies."""

DELIVERY = ["65", "121", "122", "124", "126", "134", "137", "141", "142", "144"]
"""What goes out by mail, Slack and webhooks."""
MAIL = ["129", "130", "132", "133", "134", "135", "136", "137", "138", "145"]
"""Mail that comes in."""
TOOLS = ["88", "150", "152"]
"""What a model does with its tools, and what it may not reach with them."""


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
    listed = [*FIRST_ISSUE, *PEOPLE, *CONTEXT, *HOOKS, *MODEL, *DELIVERY, *MAIL, *TOOLS, *CLOCKS]
    assert not [number for number in listed if number not in proved]
    assert len(listed) == 31 + 12 + 2 + 14 + 10 + 10 + 10 + 3 + 12
