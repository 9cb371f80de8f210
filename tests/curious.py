"""Questions for tests: what an agent asks, a directory, and a fleet whose people are asked by mail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.asked import SECRET, URL, Mailbox, send
from tests.hands import Script, once
from tests.harness import Fleet, fleet
from twelvefold.directory import Directory
from twelvefold.questions import AskHuman

ANN, BEN = "ann@example.org", "ben@example.org"
DIRECTORY = Directory(names={"refund-ops": (ANN, BEN), "ann": (ANN,), "nobody": ("no@example.org",)})
WHICH = AskHuman(reason="Refund or replace?", format="choice", choices=["Refund", "Replace"], target="refund-ops")
SURE = AskHuman(reason="Is the parcel lost?", format="yes_no", target="ann")
WHY = AskHuman(reason="Why was it sent back?", target="refund-ops")


@contextmanager
def curious(database: Any, script: Script | AskHuman = WHICH, **change: Any) -> Iterator[Fleet]:
    """A fleet whose agent `curious` asks, with links and a directory."""
    chosen = once(script) if isinstance(script, AskHuman) else script
    with fleet(database, chosen, directory=DIRECTORY, public_url=URL, link_secrets=(SECRET,), **change) as f:
        yield f


def ask_by(f: Fleet, box: Mailbox | None = None) -> str:
    """A task that asks, with its letters sent."""
    task = f.open("curious")
    assert f.drain(task) == "waiting"
    send(f, box or Mailbox())
    return task
