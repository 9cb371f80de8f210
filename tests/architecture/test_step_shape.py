"""The heart stays readable: one screen, and its phases in the order of the picture."""

import ast

from .tree import source

PHASES = ["claim", "absorb", "begin", "perform", "reduce", "commit"]


def _called(function: ast.FunctionDef) -> list[str]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    ordered = sorted(calls, key=lambda node: (node.lineno, node.col_offset))
    # an argument is evaluated before the call it stands in, and `x.move(reduce(...))` calls reduce
    return [node.func.id for node in ordered if isinstance(node.func, ast.Name)]


def test_the_step_calls_its_phases_in_the_order_of_the_picture():
    top = next(n for n in ast.parse(source("workers/step.py")).body if isinstance(n, ast.FunctionDef))
    assert top.name == "step"
    assert [name for name in _called(top) if name in PHASES] == PHASES


def test_the_step_fits_one_screen():
    top = next(n for n in ast.parse(source("workers/step.py")).body if isinstance(n, ast.FunctionDef))
    assert top.end_lineno is not None
    assert top.end_lineno - top.lineno < 40
    assert len(source("workers/step.py").splitlines()) < 90
