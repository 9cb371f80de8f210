"""Shipped code is finished: no function body stands in for one that was never written."""

import ast
import builtins
from collections.abc import Iterator

import pytest

from .tree import modules, source

Function = ast.FunctionDef | ast.AsyncFunctionDef
WITHOUT_BODY = {"abstractmethod", "overload"}
BUILT_IN_ERRORS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}


def last_name(node: ast.expr) -> str:
    """`Protocol` for `Protocol`, `typing.Protocol`, `Protocol[T]` and `Protocol()` alike."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return last_name(inner)
        case _:
            return ""


def bases(node: ast.ClassDef) -> set[str]:
    return {last_name(base) for base in node.bases}


def error_names(trees: list[ast.Module]) -> set[str]:
    """Names of all exception classes, built in and ours, however long the line of descent."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    known = set(BUILT_IN_ERRORS)
    while new := {node.name for node in classes if bases(node) & known} - known:
        known |= new
    return known


def functions(node: ast.AST, owner: ast.ClassDef | None = None) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Every function with the class whose method it is, if it is one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, owner
            yield from functions(child)
        else:
            yield from functions(child, child if isinstance(child, ast.ClassDef) else owner)


def stands_in(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass():
            return True
        case ast.Expr(value=ast.Constant(value=value)):
            return value is ...
        case ast.Raise(exc=ast.expr() as raised):
            return last_name(raised) == "NotImplementedError"
        case _:
            return False


def is_stub(function: Function, owner: ast.ClassDef | None, errors: set[str]) -> bool:
    if WITHOUT_BODY & {last_name(decorator) for decorator in function.decorator_list}:
        return False
    if owner is not None and "Protocol" in bases(owner):
        return False
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return owner is None or owner.name not in errors
    return all(map(stands_in, body))


def stubs(sources: dict[str, str]) -> list[str]:
    """`file:line name` of every stub."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    errors = error_names(list(trees.values()))
    return [
        f"{module}:{function.lineno} {function.name}"
        for module, tree in trees.items()
        for function, owner in functions(tree)
        if is_stub(function, owner, errors)
    ]


def test_no_function_is_a_stub():
    found = stubs({module: source(module) for module in modules()})
    assert not found, f"Write the body, or leave the name out: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "def f(): ...",
        "def f(): pass",
        'def f():\n    """Words only."""',
        "def f(): raise NotImplementedError",
        'def f():\n    """Words."""\n    raise NotImplementedError("later")',
        "async def f(): pass",
        "class A:\n    def f(self): ...",
        "def outer():\n    def f(): pass\n    return f",
        "if True:\n    def f(): ...",
    ],
)
def test_a_stub_is_seen(text):
    assert len(stubs({"seeded.py": text})) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f(): return None",
        "class A(Protocol):\n    def f(self): ...",
        'class A(typing.Protocol[T]):\n    def f(self):\n        """Words only."""',
        "class A:\n    @abc.abstractmethod\n    def f(self): ...",
        "@overload\ndef f(x: int) -> int: ...",
        'class A(ValueError):\n    pass\nclass B(A):\n    def f(self):\n        """Words only."""',
        "def f():\n    pass\n    return 1",
    ],
)
def test_a_body_that_is_meant_is_left_alone(text):
    assert stubs({"seeded.py": text}) == []
