"""The limits of a model's account hold for all processes together, as the endpoint itself sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from console.embedded import Valkey
from tests.fakes.openai_server import Answer, tool_call
from tests.kills.processes import World, world

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
STEPS, USED = 50, (400, 100)
ON_THE_WAY = 1
"""Requests that may come so close together only because one of them took longer on its way."""


def limited(w: World, **limits: float) -> None:
    """Two processes with a slot for each of fifty steps, and fifty steps that each ask once."""
    w.model.script(lambda request: _done())
    tasks = [w.fleet.open("notes") for _ in range(STEPS)]
    assert len(tasks) == STEPS
    for _ in range(2):
        w.worker(slots=STEPS, env={"TWELVEFOLD_MODEL_LIMITS": json.dumps(limits)})


def _done() -> Answer:
    return tool_call("done", {"outcome": {"text": "ok"}}, usage=USED)


def most_within(seconds: float, moments: Sequence[float]) -> int:
    """The largest number of moments that lie within so many seconds."""
    return max(sum(1 for at in moments if start <= at < start + seconds) for start in moments)


def test_fifty_steps_in_two_processes_ask_ten_times_a_second(fresh_database: Any, valkey: Valkey) -> None:
    valkey.start()
    with world(fresh_database, valkey) as w:
        limited(w, requests_per_second=10)
        w.until(lambda: w.one("SELECT count(*) FROM agent_tasks WHERE status = 'done'") == STEPS, 120)
        moments = [seen.at for seen in w.model.requests]
        assert len(moments) == STEPS, "whoever had to wait asked once all the same"
        assert most_within(1, moments) <= 10 + ON_THE_WAY
        assert w.one("SELECT sum((state -> 'transport')::int) FROM agent_tasks") in (0, None), "waiting is no failure"
        print(f"\n50 questions of two processes at 10/s: {moments[-1] - moments[0]:.1f} s")


def test_fifty_steps_in_two_processes_use_ten_thousand_tokens_a_minute(fresh_database: Any, valkey: Valkey) -> None:
    valkey.start()
    with world(fresh_database, valkey) as w:
        limited(w, tokens_per_minute=10_000)
        w.until(lambda: bool(w.model.requests), 60)
        first = w.model.requests[0].at
        w.until(lambda: time.monotonic() > first + 75, 90)
        moments = [seen.at for seen in w.model.requests]
        minute = most_within(60, moments) * sum(USED)
        print(f"\n10,000 tokens a minute: {minute} in the busiest, {len(moments)} questions")
        assert 7_000 <= minute <= 10_000 + ON_THE_WAY * sum(USED)
