"""The README tells what is true: every factor and promise names files and tests that exist, and its code is shipped."""

import ast
import re

import pytest

from .tree import ROOT, source

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in README.split("\n## ")[1:]}
FACTORS = re.findall(r"^\| (\d+) \| \*\*(.+?)\*\* \| `(.+?)` \| (.+?) \|$", SECTIONS["Factors"], re.MULTILINE)
PROMISES = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", SECTIONS["Promises"], re.MULTILINE)


def _defined(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_twelve_factors_and_one_and_ten_promises():
    assert [int(number) for number, *_ in FACTORS] == list(range(1, 14))
    assert [int(number) for number, *_ in PROMISES] == list(range(1, 11))


@pytest.mark.parametrize(("number", "tests"), [(row[0], row[-1]) for row in [*FACTORS, *PROMISES]])
def test_every_factor_and_every_promise_names_a_collected_test(number, tests):
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named, f"row {number} names no test"
    assert len(named) == tests.count("::"), "a name is not written as a path and a test"
    for path, name in named:
        assert name in _defined(path), f"row {number}: {path} has no {name}"


def test_every_factor_names_a_file():
    for number, _, path, _ in FACTORS:
        assert (ROOT / path).is_file(), f"factor {number}: there is no {path}"


def test_the_examples_are_the_shipped_agent():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    assert blocks[0].strip() in source("agents/deploy/agent.py")
    assert blocks[1].strip() in source("agents/deploy/tools.py")


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), f"there is no {link}"
