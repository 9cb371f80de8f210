"""Each import contract holds for the code as it is, and breaks when somebody does what it forbids."""

import os
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

from .tree import CODE, ROOT

LINT_IMPORTS = Path(sysconfig.get_path("scripts")) / "lint-imports"

# contract, file (made when it is missing), line that is added to it
SEEDS = [
    ("Arrows point down", "workers/__init__.py", "import console"),
    ("Arrows point down", "delivery/__init__.py", "import triggers"),
    ("Arrows point down", "twelvefold/__init__.py", "import agents"),
    ("The core is pure", "twelvefold/__init__.py", "import time"),
    ("The core is pure", "twelvefold/__init__.py", "from sqlalchemy import select"),
    ("Agents do not know each other", "agents/seeded/__init__.py", "import agents.seeded_other"),
    ("A declaration is pure; only its tools reach out", "agents/seeded/agent.py", "import os"),
    ("The edges touch neither database nor broker nor model", "triggers/__init__.py", "import redis"),
    ("One module talks to the model", "console/__init__.py", "import workers.model"),
    ("Inside the shell", "workers/settings.py", "import workers.step"),
    ("Inside the shell", "workers/seeded.py", ""),
    ("Inside the core", "twelvefold/errors.py", "import twelvefold.reducer"),
    ("Inside the core", "twelvefold/seeded.py", ""),
]


def contracts() -> dict[str, str]:
    """Name and id of every contract."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["name"]: contract["id"] for contract in pyproject["tool"]["importlinter"]["contracts"]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code folders and the contracts, to be spoiled at will."""
    for folder in CODE:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(root: Path, *options: str) -> tuple[int, str]:
    """Exit code and report; without our PYTHONPATH, which would lead back to the original."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache", *options],
        cwd=root,
        env=environment | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_contract_holds(copy):
    code, report = lint(copy)
    assert code == 0, report
    for contract in contracts():
        assert f"{contract} KEPT" in report


@pytest.mark.parametrize(("contract", "file", "line"), SEEDS)
def test_a_seeded_violation_breaks_the_contract(copy, contract, file, line):
    seeded = copy / file
    for package in (copy / "agents/seeded_other", seeded.parent):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    with seeded.open("a", encoding="utf-8") as text:
        text.write(f"\n{line}\n")

    code, report = lint(copy, "--contract", contracts()[contract])

    assert code == 1, report
    assert f"{contract} BROKEN" in report, report


def test_no_contract_goes_without_a_seeded_violation():
    assert {contract for contract, _, _ in SEEDS} == set(contracts())
