"""An instant model, or one that takes its time without using any."""

from __future__ import annotations

import time
from typing import Any

from twelvefold import Done, Task, Text
from twelvefold.tool import Tool

from .agent import Look

_plans: dict[str, tuple[int, int, float, int]] = {}
"""What each task's message says; a real model would read it in its window, which costs this process nothing."""


def script(task: Task) -> Tool[Any] | list[Tool[Any]]:
    """The next look, or several in one reply, after the seconds that the message names."""
    if task.id not in _plans:
        count, size, seconds, *together = task.event.text.split()
        _plans[task.id] = int(count), int(size), float(seconds), int(together[0]) if together else 1
    looks, width, wait, together = _plans[task.id]
    if wait:
        time.sleep(wait)
    done = task.count(Look)
    if done >= looks:
        return Done(outcome=Text(text="looked"))
    calls: list[Tool[Any]] = [Look(number=done + n, size=width) for n in range(together)]
    return calls if together > 1 else calls[0]
