"""A tenant with a few tasks does not wait behind one with thousands."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .processes import SHIPPED, Stage

STEP_S = 0.1
SHIPS: dict[str, Any] = {name.removeprefix("TWELVEFOLD_").lower(): value for name, value in SHIPPED.items()}


def waits(s: Stage, count: int, tenant: str) -> list[float]:
    """One task a second of this tenant, told to the lane as the web application tells it: how long each waited from its
    arrival to the end of its only step, without the step itself, in order of size.
    """
    tasks = []
    for _ in range(count):
        began = time.monotonic()
        tasks.append(s.fleet.open("bench", f"0 0 {STEP_S}", tenant))
        s.lanes.ring("steps", [(tasks[-1], "bench")])
        time.sleep(max(0, 1 - (time.monotonic() - began)))
    s.until_done(*tasks)
    rows = s.fleet.run.db.rows(
        "SELECT extract(epoch FROM finished_at - created_at)::float AS s FROM agent_tasks"
        " WHERE id = ANY(%(ids)s::uuid[])",
        {"ids": tasks},
    )
    return sorted(float(row["s"]) - STEP_S for row in rows)


def p99(values: list[float]) -> float:
    return values[min(len(values) - 1, int(len(values) * 0.99))]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_task_a_second_waits_at_most_four_steps_longer_behind_twenty_thousand_of_another(s: Stage) -> None:
    s.worker(slots=8, scripted=True, **SHIPS)
    s.lanes.windows["steps"] = 17
    alone = waits(s, 40, "b")
    s.many(20_000, f"0 0 {STEP_S}", tenant="a")
    s.until(lambda: s.waiting() > 0)
    beside = waits(s, 100, "b")
    left = s.one("SELECT count(*) FROM agent_tasks WHERE tenant = 'a' AND status = 'ready'")
    print(f"\nalone p99 {p99(alone) * 1000:.0f} ms, beside p99 {p99(beside) * 1000:.0f} ms, median "
          f"{beside[50] * 1000:.0f} ms; {left} of the other tenant's are left")  # fmt: skip
    assert left > 5_000, "or the other one was not there"
    assert p99(beside) <= p99(alone) + 4 * STEP_S
