"""What the scripted model decides in the place of a real one, so that the demo runs without a key."""

from __future__ import annotations

from typing import Any

from twelvefold import Done, NothingToDo, Task
from twelvefold.tool import Tool

from .tools import ListDeployments, RecordDeployment


def script(task: Task) -> Tool[Any]:
    """Look, record, report."""
    released = task.event
    earlier = task.last(ListDeployments)
    if earlier is None:
        return ListDeployments(repository=released.repository)
    if any(deployment.tag == released.tag for deployment in earlier):
        return NothingToDo(reason=f"{released.tag} is recorded already.")
    recorded = task.last(RecordDeployment)
    if recorded is None:
        before = f"It follows {earlier[0].tag}." if earlier else "Nothing was deployed before."
        return RecordDeployment(
            repository=released.repository, tag=released.tag, summary=f"{released.tag} by {released.author}. {before}"
        )
    return Done(outcome=recorded)
