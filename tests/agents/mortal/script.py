"""A step that kills its worker, as one does that needs more memory than there is."""

from __future__ import annotations

import os
import signal
from typing import Any

from twelvefold import Done, Task, Text
from twelvefold.tool import Tool


def script(task: Task) -> Tool[Any]:
    """Die if the message says so, else be done."""
    if task.event.text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return Done(outcome=Text(text="alive"))
