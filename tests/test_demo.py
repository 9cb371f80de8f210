"""The demo says 0 only when everything came true, and whatever it came to, nothing of it stays."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from console import demo as module
from console.demo import demo
from console.dev import Stack
from console.embedded import StackError
from console.embedded.pipeline import Pipeline, Wanted
from console.sample import DemoFailed


class Idle:
    """A stack that starts nothing."""

    def __init__(self, home: Path, environment: dict[str, str], **_: Any) -> None:
        self.home, self.env, self.destroyed = home, environment, False
        IDLE.append(self)

    def __enter__(self) -> None:
        """Nothing starts."""

    def __exit__(self, *_: object) -> None:
        """Nothing ends."""

    def destroy(self) -> None:
        """Note it."""
        self.destroyed = True


IDLE: list[Idle] = []


@pytest.mark.parametrize("error", [DemoFailed("no mail"), StackError("no port"), KeyError("pid")])
def test_whatever_goes_wrong_is_told_and_is_one(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.setattr(module, "Stack", Idle)
    monkeypatch.setattr(module, "_Story", breaks)
    said: list[str] = []
    assert demo(said.append) == 1
    assert "The demo failed: " in said[-1] and str(error) in said[-1]
    assert IDLE[-1].destroyed and not IDLE[-1].home.exists()


def test_the_demo_mails_nobody_and_deploys_nowhere_whatever_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMTP_HOST", "SMTP_PASSWORD", "TWELVEFOLD_SERVICES", "TWELVEFOLD_PUBLIC_URL"):
        monkeypatch.setenv(name, "real")
    monkeypatch.setattr(module, "Stack", Idle)
    said: list[str] = []
    demo(said.append)
    assert "real" not in IDLE[-1].env.values()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_second_deployment_makes_the_demo_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Pipeline.deploy

    def forgets(self: Pipeline, key: str, wanted: Wanted) -> Any:
        return honest(self, f"{key} {len(self.requests)}", wanted)

    monkeypatch.setattr(Pipeline, "deploy", forgets)
    said: list[str] = []
    assert demo(said.append) == 1
    assert "the pipeline deployed 2 times" in said[-1]


def test_ports_and_secrets_are_those_of_last_time_unless_taken_or_given(tmp_path: Path) -> None:
    first, again = Stack(tmp_path, {}), Stack(tmp_path, {})
    first._choose()
    again._choose()
    assert again.env == first.env
    assert len(first.env["TWELVEFOLD_LINK_SECRETS"]) >= 32
    assert (tmp_path / "chosen.json").stat().st_mode & 0o777 == 0o600
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(first.env["TWELVEFOLD_HTTP_PORT"])))
        taken.listen()
        moved = Stack(tmp_path, {"GITHUB_WEBHOOK_SECRETS": "own", "TWELVEFOLD_PUBLIC_URL": "https://fleet.example"})
        moved._choose()
    assert moved.env["TWELVEFOLD_HTTP_PORT"] != first.env["TWELVEFOLD_HTTP_PORT"]
    assert moved.env["TWELVEFOLD_LINK_SECRETS"] == first.env["TWELVEFOLD_LINK_SECRETS"]
    assert (
        moved.env["GITHUB_WEBHOOK_SECRETS"] == "own" and moved.env["TWELVEFOLD_PUBLIC_URL"] == "https://fleet.example"
    )
    assert "own" not in json.loads((tmp_path / "chosen.json").read_text()).values()


def test_no_process_of_the_fleet_is_handed_what_only_the_console_needs(tmp_path: Path) -> None:
    stack = Stack(tmp_path, {})
    stack._choose()
    assert not {"API_TOKEN", "FLOWER_PASSWORD", "STAND_INS_PORT"} & set(stack.env)
