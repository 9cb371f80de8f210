"""Run the benchmarks: `make bench`. Exit code 1 when a ratio misses its target.

Ratios are measured pair by pair in one run; milliseconds, megabytes and rates depend on the machine and are printed
only. The targets are those of the first issue.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.agents.bench.script import script

from . import rows
from .machine import Machine, machine


@dataclass(frozen=True)
class Target:
    """A ratio and the bound it has to keep."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether it holds."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def line(self) -> str:
        """One line of the table."""
        sign = ">=" if self.at_least else "<="
        return f"{'ok  ' if self.kept else 'MISS'} {self.name:<62} {self.value:>8.2f}  {sign} {self.bound}"


def rates(m: Machine) -> list[Target]:
    """Steps against bare Celery, three pairs each, the median of the ratios."""
    on, off = list[float](), list[float]()
    for _ in range(3):
        bare, quiet, seen = rows.bare(m), rows.ours(m, events=False), rows.ours(m, events=True)
        off.append(quiet.per_s / bare.per_s)
        on.append(seen.per_s / bare.per_s)
        print(f"     bare {bare.per_s:6.0f}/s {bare.worker_ms:.2f} ms | steps {quiet.per_s:5.0f}/s worker "
              f"{quiet.worker_ms:.2f} ms, PostgreSQL {quiet.postgres_ms:.2f} ms | events on {seen.per_s:5.0f}/s "
              f"{seen.worker_ms:.2f} ms", flush=True)  # fmt: skip
    return [
        Target("steps/s over bare Celery no-op/s, events off", statistics.median(off), 0.6, at_least=True),
        Target("steps/s over bare Celery no-op/s, events on", statistics.median(on), 0.45, at_least=True),
    ]


def slow_model(m: Machine) -> list[Target]:
    """Many tasks in flight on a model of 2 s."""
    few = rows.slow(m, 200, 400, events=True)
    many, many_quiet = rows.slow(m, 1000, 2000, events=True), rows.slow(m, 1000, 2000, events=False)
    print(f"     memory with 1,000 in flight: {many.memory_mb:.0f} MB", flush=True)
    return [
        Target("200 tasks on a 2 s model, events on: wall over ideal", few.over_ideal, 1.03),
        Target("1,000 tasks on a 2 s model, events on: wall over ideal", many.over_ideal, 1.18),
        Target("1,000 tasks on a 2 s model, events off: wall over ideal", many_quiet.over_ideal, 1.08),
    ]


def long_task(m: Machine) -> list[Target]:
    """A step at event 10,000 over one at event 10."""
    found = rows.growth(m)
    print(f"     WAL for a step: {found.wal_bytes:.0f} bytes with results of 2 KB", flush=True)
    return [
        Target("a step at 10,000 events over one at 10: median time", found.time, 1.2),
        Target("a step at 10,000 events over one at 10: WAL bytes", found.wal, 1.1),
    ]


GROUPS: dict[str, Callable[[Machine], list[Target]]] = {"rates": rates, "slow": slow_model, "long": long_task}


def main(names: list[str]) -> int:
    """Measure the named groups, or all; 0 when every target is kept."""
    missed = 0
    with machine(script) as m:
        for name in names or list(GROUPS):
            for target in GROUPS[name](m):
                print(target.line(), flush=True)
                missed += not target.kept
    print("every target is kept" if not missed else f"{missed} target(s) missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
