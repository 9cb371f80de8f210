"""Two processes fire the schedules of eight weeks and are killed at random: each time has one arrival."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest

from console.migrate import ROOT
from tests.harness import fleet
from tests.integration.test_schedules import all_arrived, begin, done, instant, tick
from tests.kills.scheduler import READY, declared
from workers.timetable import Timetable

pytestmark = [pytest.mark.long, pytest.mark.kills, pytest.mark.timeout(600)]
SEED = 12
KILLS = 24


def scheduler(database: str, clock: Path) -> subprocess.Popen[str]:
    """One that runs, and has begun."""
    argv = [sys.executable, "-m", "tests.kills.scheduler", database, str(clock)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    while made.stdout.readline().strip() != READY:
        assert made.poll() is None, "the scheduler has ended"
    return made


def test_two_scheduler_processes_killed_over_eight_weeks_give_each_time_one_arrival(
    fresh_database: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, clock = Random(SEED), tmp_path / "clock"
    clock.write_text("")
    begun, end = instant("2027-10-10T00:00Z"), instant("2027-12-05T00:00Z")
    with fleet(fresh_database, done) as f:
        bindings = declared(f)
        Timetable(f.intake).declare("t1")
        begin(f, begun.isoformat())
        running = [scheduler(fresh_database.app, clock) for _ in range(2)]
        try:
            now = begun
            stride = (end - begun) / (4 * KILLS)
            for moment in range(4 * KILLS):
                now += stride
                _set(clock, now.isoformat())
                sleep(dice.uniform(0.01, 0.3))  # where it is when it is killed is left to chance
                if moment % 4 == 3:
                    one = dice.randrange(2)
                    running[one].kill()
                    running[one].communicate()
                    running[one] = scheduler(fresh_database.app, clock)
        finally:
            for each in running:
                each.kill()
                each.communicate()
        during = f.one("SELECT count(*) FROM arrivals")
        while tick(f, end + timedelta(hours=2)):
            pass
        for binding in bindings:
            all_arrived(f, binding, begun, end + timedelta(hours=2))
        total = f.one("SELECT count(*) FROM arrivals")
        assert f.one("SELECT count(*) FROM agent_tasks") == total
        assert during > total // 2, "most fired while processes were killed, or this has shown nothing"
        with capsys.disabled():
            print(f"\n{total} times of three schedules, {KILLS} kills, {during} fired by the killed processes")


def _set(clock: Path, now: str) -> None:
    """A reader sees the old time or the new one, never half of it."""
    new = clock.with_suffix(".new")
    new.write_text(now)
    new.replace(clock)
