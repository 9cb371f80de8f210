"""Defects of the systems this one learned from: each that concerns people and the life of a task has one named test."""

import ast
import re
from collections import Counter
from pathlib import Path

from .tree import ROOT

PEOPLE = [f"{n:02}" for n in (1, 2, 8, 9, 10, 11, 13, 14, 23, 24, 25, 26, 29, 30)]


def numbers() -> Counter[str]:
    """The defects that tests are named after, and by how many each."""
    found = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        found += [match[1] for name in names if (match := re.match(r"test_f(\d\d)_", name))]
    return Counter(found)


def test_every_defect_has_one_test_of_its_number():
    assert numbers() == Counter(PEOPLE)
    assert len(PEOPLE) == 14
