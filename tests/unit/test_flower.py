"""Flower is never served without a login, and its login is in no argument that a list of processes would show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from console.cli import cli


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the process would have become: its arguments, and the login that it inherits."""
    seen: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: seen.append((argv, os.environ.get("FLOWER_BASIC_AUTH"))))
    monkeypatch.setattr(os, "chdir", lambda _: None)
    monkeypatch.setenv("PYTHONPATH", "")
    for name in ("FLOWER_BASIC_AUTH", "FLOWER_BASIC_AUTH_FILE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return seen


@pytest.mark.parametrize("login", [None, "", "only-a-user"])
def test_without_a_user_and_a_password_it_is_not_served(
    became: list[Any], login: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if login is not None:
        monkeypatch.setenv("FLOWER_BASIC_AUTH", login)
    told = CliRunner().invoke(cli, ["flower"])
    assert told.exit_code == 2 and "FLOWER_BASIC_AUTH" in told.output and became == []


def test_the_login_may_stand_in_a_file(became: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "login").write_text("ann:very-secret\n")
    monkeypatch.setenv("FLOWER_BASIC_AUTH_FILE", str(tmp_path / "login"))
    CliRunner().invoke(cli, ["flower", "--port", "5556"])
    [(argv, login)] = became
    assert login == "ann:very-secret" and not any("secret" in argument for argument in argv)
    assert {"--address=127.0.0.1", "--port=5556", "--read-only"} <= set(argv)
