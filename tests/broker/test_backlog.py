"""A backlog is rows, not messages: a lane holds its window, tenants share fairly, people do not wait behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agents.bench.script import script
from workers.store import sweeps

from .processes import SHIPPED, Stage

pytestmark = pytest.mark.timeout(180)

PLAIN: dict[str, Any] = {name.removeprefix("TWELVEFOLD_").lower(): value for name, value in SHIPPED.items()}


@contextmanager
def sampled(s: Stage, lane: str = "steps") -> Iterator[list[int]]:
    """The length of a lane, looked at as often as can be while the block runs."""
    lengths: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.001):
            lengths.append(s.waiting(lane))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lengths
    finally:
        over.set()
        thread.join()


def backlog(s: Stage, big: int, small: int, timeout: float) -> float:
    """Two tenants, one with a lot of tasks and one that comes later with a few: steps a second."""
    slots = 8
    s.many(big, tenant="big")
    s.many(small, tenant="small")
    s.worker(slots=slots, scripted=True)
    began = time.monotonic()
    with sampled(s) as lengths:
        s.until(lambda: s.count() == big + small, timeout)
    took = time.monotonic() - began
    assert 0 < max(lengths) <= 2 * slots + 1
    assert s.one("SELECT max(current_step) FROM agent_tasks") == 1
    most = int(small * 0.9)  # the very last may have waited for its second doorbell
    last = f"(SELECT finished_at FROM agent_tasks WHERE tenant = 'small' ORDER BY 1 OFFSET {most} LIMIT 1)"
    ahead = s.one(f"SELECT count(*) FROM agent_tasks WHERE tenant = 'big' AND finished_at <= {last}")
    assert ahead <= most * 1.3 + 2 * (2 * slots + 1), f"{ahead} of the big tenant's before {most} of the small one's"
    return (big + small) / took


def test_two_thousand_ready_tasks_are_a_handful_of_messages_and_two_tenants_share(s: Stage) -> None:
    print(f"{backlog(s, 1_800, 200, 90):.0f} tasks/s")


def test_tenants_share_also_where_one_place_falls_free_at_a_time(s: Stage) -> None:
    first = [s.fleet.open("bench", "0 0 0", "first") for _ in range(10)]
    for _ in range(10):
        s.fleet.open("bench", "0 0 0", "second")
    rung = [bell for _ in range(10) for bell in sweeps.ring(s.fleet.run.db, "steps", 1, 60)]
    assert len(rung) == 10
    assert sum(task in first for task, _ in rung) == 5, "what a tenant has under way counts as its share"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_thousand_ready_tasks_are_a_handful_of_messages_and_two_tenants_share(s: Stage) -> None:
    print(f"{backlog(s, 18_000, 2_000, 800):.0f} tasks/s")


def test_b14_an_answer_does_not_wait_behind_bulk(s: Stage) -> None:
    s.fleet.run.model.scripts["bench"] = script  # type: ignore[attr-defined]
    person = s.fleet.open("bench", "2 10 0")
    assert s.fleet.drain(person) == "done"
    answers = s.worker(lanes=["answers"], slots=2, scripted=True, ready=False, **PLAIN)
    bulk = s.worker(lanes=["steps"], slots=4, scripted=True, ready=False, **PLAIN)
    s.until_up(answers, bulk)
    s.many(1_000, "0 0 1")
    s.until(lambda: s.waiting() >= 4)
    before = s.row(person)["fence"]
    s.fleet.intake.message(person, source="test", key="again", text="2 10 0", sender="ada")
    began = time.monotonic()
    s.until(lambda: s.row(person)["fence"] > before, 10)
    assert time.monotonic() - began < 2
    s.until_done(person)
    assert time.monotonic() - began < 4, "its later steps do not queue up behind bulk either"
    assert s.count("ready") > 900
