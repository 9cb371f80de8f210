"""Every shell block of the README runs as written, in a fresh clone.

What is fresh: the clone, its virtual environment, its command line, everything that `make` makes and everything that
runs. What is shared, so that nothing is fetched a second time: the packages, which the new environment reads from the
environment that runs the tests, and the programs of development tools (`ruff`, `mypy` and so on). `make install` still
runs, and finds every requirement of the lock satisfied. `make test` collects the suite and does not run it: this test
is part of it. `make up` runs until the commands that the README gives for a second terminal have been seen to work.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
OURS = re.compile(r"TWELVEFOLD_|DATABASE_URL|OWNER_DATABASE_URL|BROKER_URL|SMTP_|OPENAI_|MAKE|PYTHON")
DEMO_S = 120.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of what is committed, with an environment that shares the packages of this one."""
    home = tmp_path / "twelvefold"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(home)], check=True)
    venv.create(home / ".venv", with_pip=False)
    packages = next((home / ".venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for program in Path(sys.executable).parent.iterdir():
        mine = home / ".venv" / "bin" / program.name
        if program.name != "twelvefold" and not mine.exists():
            mine.symlink_to(program)
    return home


def environment() -> dict[str, str]:
    """As on a machine where nothing of ours is set."""
    return {name: value for name, value in os.environ.items() if not OURS.match(name)} | {"PYTEST_ADDOPTS": "--co"}


def run(line: str, home: Path) -> str:
    """One line in a shell; its output."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line], cwd=home, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"{line} ended with {done.returncode}:\n{done.stdout[-5000:]}"
    return done.stdout


@contextmanager
def kept_running(line: str, home: Path) -> Iterator[None]:
    """A line that runs until Ctrl-C, from the moment that it says what to try."""
    log = home.parent / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=home, env=environment(), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 180
            while "Try, in another terminal" not in log.read_text():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
    assert "the data stay" in log.read_text(), log.read_text()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_every_shell_block_of_the_readme_runs_in_a_fresh_clone(clone: Path) -> None:
    lines = [block.strip().splitlines() for block in BLOCKS]
    assert [block[0] for block in lines] == ["make demo", "make up", ".venv/bin/twelvefold try", "make check"]
    installed = run("make install", clone)
    assert "Installing" in installed and "Downloading" not in installed
    began = time.monotonic()
    told = run(lines[0][0], clone)
    assert "Everything came true" in told and time.monotonic() - began < DEMO_S
    with kept_running(lines[1][0], clone):
        tried, listed, *_ = [run(line, clone) for line in lines[2]]
    assert "It waits for a person" in tried and "waiting (approval)" in listed
    for line in lines[3]:
        run(line, clone)
    left = subprocess.run(["pgrep", "-f", str(clone)], capture_output=True, text=True, check=False)
    assert left.stdout == "", f"processes outlive the README: {left.stdout}"
