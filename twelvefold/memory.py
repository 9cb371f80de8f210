"""Memory: what an agent keeps beyond a task, about one subject of one tenant; the calls `remember` and `recall`.

What is kept is somebody's word: it carries who wrote it down, from whose message, and whether anybody vouches for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from .tool import Kind, Tool

LONGEST_MEMORY = 500
MOST_MEMORIES = 200
"""Of one subject; the oldest give way."""
MOST_RECALLED = 10


class Memory(BaseModel):
    """One thing that was remembered: `task` and `seq` are the call that did it, `sender` whose message it came from.
    `tainted`: the task had read text of a sender whom nothing proves.
    """

    model_config = ConfigDict(frozen=True)
    text: str
    at: datetime
    agent: str
    task: str
    seq: int
    sender: str = ""
    tainted: bool = False


class Remember(Tool[str]):
    """Keep one short fact about whom this task is about, for later tasks. Use for what will still be true next time,
    such as a wish or a habit; not for what stands in an order or a ticket.
    """

    __kind__: ClassVar[Kind] = "write"

    text: str = Field(min_length=1, max_length=LONGEST_MEMORY, examples=["Prefers to be written to in German."])


class Recall(Tool[list[Memory]]):
    """Look up what earlier tasks kept about whom this task is about. Use before you decide by habit or wish; an empty
    query gives the newest.
    """

    __kind__: ClassVar[Kind] = "read"

    query: str = Field(max_length=200, examples=["language"])
