"""The README tells what is true: every promise names tests that exist, and its example is the shipped agent."""

import ast
import re

from .tree import ROOT, source

README = (ROOT / "README.md").read_text(encoding="utf-8")


def _rows() -> list[tuple[int, str, str]]:
    found = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", README, re.MULTILINE)
    return [(int(number), promise, tests) for number, promise, tests in found]


def _defined(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_ten_promises():
    assert [number for number, _, _ in _rows()] == list(range(1, 11))


def test_every_promise_names_a_collected_test():
    for number, _, tests in _rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named, f"promise {number} names no test"
        for path, name in named:
            assert name in _defined(path), f"promise {number}: {path} has no {name}"


def test_the_example_is_the_shipped_agent():
    block = re.search(r"```python\n(agent = Agent\(.*?)```", README, re.DOTALL)
    assert block is not None
    assert block[1].strip() in source("agents/deploy/agent.py")
