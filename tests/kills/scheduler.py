"""A process that fires schedules by a clock in a file, until it is killed."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

from tests.hands import change
from tests.harness import NO_BROKER, Fleet
from twelvefold import Done, Text, on
from workers.schedules import fire

READY = "ready"
SHOWN = 0.002
"""Seconds between two looks at the clock."""


def declared(f: Fleet) -> list[Any]:
    """What this process and its tests declare: fixed times around both changes of the clock, and every hour."""
    kinds: Any = {"overlap": "allow", "catch_up": "all", "window": timedelta(days=30)}
    zone = "America/New_York"
    bindings = [
        on.cron("30 1 * * *", name="daily", tz=zone, **kinds), on.cron("0 * * * *", name="often", **kinds),
        on.cron("30 2 * * *", name="gap", tz=zone, jitter=timedelta(hours=1), **kinds),
    ]  # fmt: skip
    change(f, "notes", triggers=bindings)
    return bindings


def main(database: str, clock: str) -> None:
    """Fire what is due by the clock, again and again."""
    f = Fleet(database, lambda task: Done(outcome=Text(text="ok")), broker=NO_BROKER)
    declared(f)
    print(READY, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on, and a full pipe would hold it up
    while True:
        now = Path(clock).read_text()
        if now:
            fire(f.intake, f.run.log, datetime.fromisoformat(now))
        sleep(SHOWN)


if __name__ == "__main__":
    main(*sys.argv[1:])
