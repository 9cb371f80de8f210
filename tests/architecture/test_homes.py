"""Each third-party library has one home, so that replacing it touches a known handful of files."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest

from .tree import CODE, at_run_time, modules, source

ENVIRONMENT = "os.environ"
DATABASE = [
    "workers/*",
    "agents/*/tools.py",
    "agents/*/tables.py",
    "migrations/*",
    "console/embedded/*",
]
BROKER = ["workers/app.py", "workers/tasks.py", "workers/lanes.py", "workers/host.py", "console/*"]

HOMES = {
    "sqlalchemy": DATABASE,
    "psycopg": DATABASE,
    "celery": BROKER,
    "kombu": BROKER,
    "redis": ["workers/lanes.py", "workers/app.py", "console/*"],
    "openai": ["workers/model.py"],
    ENVIRONMENT: ["workers/settings.py", "console/*"],
}

READS_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def uses(node: ast.AST) -> Iterator[str]:
    """What one node reaches for: names of libraries, and the environment."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name.partition(".")[0] for alias in names)
        case ast.ImportFrom(module="os", names=names) if READS_ENVIRONMENT & {alias.name for alias in names}:
            yield ENVIRONMENT
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in READS_ENVIRONMENT:
            yield ENVIRONMENT


def strangers(module: str, text: str) -> list[str]:
    """`file:line library` for every use outside the library's home."""
    return [
        f"{module}:{getattr(node, 'lineno', 0)} {name}"
        for node in at_run_time(ast.parse(text))
        for name in uses(node)
        if name in HOMES and not any(fnmatchcase(module, home) for home in HOMES[name])
    ]


def test_every_library_is_imported_in_its_home_only():
    found = [use for module in modules(*CODE, "migrations") for use in strangers(module, source(module))]
    assert not found, f"Reach it through the module that owns it: {found}"


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("delivery/email.py", "import sqlalchemy.orm"),
        ("agents/refunds/agent.py", "from sqlalchemy import select"),
        ("console/pages.py", "import psycopg"),
        ("workers/step.py", "from celery import Celery"),
        ("workers/store/tasks.py", "def f():\n    from kombu import Queue"),
        ("workers/tasks.py", "import redis"),
        ("workers/perform.py", "from openai import OpenAI"),
        ("workers/app.py", "import os\nos.environ['A']"),
        ("triggers/slack.py", "from os import getenv"),
    ],
)
def test_a_library_outside_its_home_is_seen(module, text):
    assert len(strangers(module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("workers/store/tasks.py", "import sqlalchemy"),
        ("agents/refunds/tables.py", "from sqlalchemy.orm import DeclarativeBase"),
        ("migrations/versions/0001_first.py", "import sqlalchemy as sa"),
        ("workers/lanes.py", "import kombu, redis"),
        ("workers/settings.py", "import os\nos.environ['A']"),
        ("workers/store/rows.py", "import os\nos.getpid()"),
        ("twelvefold/tool.py", "if TYPE_CHECKING:\n    from sqlalchemy.orm import Session"),
        ("triggers/email.py", "from .redis import thing"),
    ],
)
def test_a_library_at_home_is_left_alone(module, text):
    assert strangers(module, text) == []
