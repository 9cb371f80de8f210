"""Where the code is, for the tests of its shape. Paths are relative to the root and written with forward slashes."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("twelvefold", "workers", "agents", "triggers", "delivery", "console")


def modules(*folders: str) -> list[str]:
    """Every Python file below these root folders."""
    return sorted(
        path.relative_to(ROOT).as_posix() for folder in folders or CODE for path in (ROOT / folder).rglob("*.py")
    )


def source(module: str) -> str:
    """The text of one file that `modules` listed."""
    return (ROOT / module).read_text(encoding="utf-8")


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`, where a name serves annotations only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for otherwise in node.orelse:
                yield otherwise
                yield from at_run_time(otherwise)
        else:
            yield node
            yield from at_run_time(node)
