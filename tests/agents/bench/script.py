"""An instant model, or one that takes its time without using any."""

from __future__ import annotations

import time
from typing import Any

from twelvefold import Done, Task, Text
from twelvefold.tool import Tool

from .agent import Look

_plans: dict[str, tuple[int, int, float]] = {}
"""What each task's message says; a real model would read it in its window, which costs this process nothing."""


def script(task: Task) -> Tool[Any]:
    """The next look, after the seconds that the message names."""
    if task.id not in _plans:
        count, size, seconds = task.event.text.split()
        _plans[task.id] = int(count), int(size), float(seconds)
    looks, width, wait = _plans[task.id]
    if wait:
        time.sleep(wait)
    done = task.count(Look)
    return Look(number=done, size=width) if done < looks else Done(outcome=Text(text="looked"))
