"""What the model sees: events to a system message, a menu and one user message, with a receipt of every event.

Event data can never close or forge a tag: every text goes through `markup`. What gives way when there is too little
room is decided in `room`; what left is named, never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .agent import Agent
from .canonical import sha256
from .directory import Directory
from .effects import AskModel
from .events import Folded
from .fold import UNSEEN
from .markup import Markup, tag
from .receipt import folded, receipt
from .record import revive
from .room import given
from .shape import Row, Shape, rendered
from .state import State, Task
from .tokens import tokens_of

counted = lru_cache(maxsize=4096)(tokens_of)
"""The tokens of a part; most parts stood in the last window too."""
NOBODY = Directory()
UNSEEN_TYPES = tuple(kind.__name__ for kind in UNSEEN)


@dataclass(frozen=True, slots=True)
class Window:
    """One request's texts, and the receipt that accounts for every event up to now. Two windows of a task with the same
    `prefix` begin alike: the later one is the earlier with events added.
    """

    system: str
    user: str
    menu: tuple[dict[str, Any], ...]
    receipt: dict[str, Any]
    request: str
    prefix: str


def build(
    agent: Agent, task: Task, prompt: str, rows: Sequence[Row], want: AskModel, directory: Directory = NOBODY,
    parts: Mapping[str, str] | None = None,
) -> Window:  # fmt: skip
    """The window of a task: `rows` are its opening event, its last `Folded` and those from the boundary on. People are
    shown by their names in the directory, never by an address. `parts` are the prompt's files, by name.
    """
    s, boundary = task.state, want.boundary
    offered = agent.offered(task)
    menu, menu_text = tuple(agent.menu_entries[name] for name in offered), agent.menu_text(offered)
    seen = [row for row in rows if row.type not in UNSEEN_TYPES and row.type != Folded.__name__]
    shapes = {row.seq: rendered(row) for row in seen if row.seq >= boundary or row.seq == s.opened}
    gone = {seq: why for seq, why in given(s.view, want.eased).items() if seq in shapes}
    shown = {seq: directory.masked(_shown(seq, shape, gone)) for seq, shape in shapes.items()}
    summary = _summary(s, boundary, rows, directory)
    user = "\n".join(["<task>", *([summary] if summary else []), *(shown[seq] for seq in sorted(shown)), "</task>"])
    files = {" + ".join(agent.prompts): prompt} if parts is None else parts
    sections: list[dict[str, Any]] = [
        {"name": "system", "tokens": counted(prompt), "source": [f"{n}@{sha256(t)[:12]}" for n, t in files.items()]},
        {"name": "tools", "tokens": counted(menu_text), "source": [f"menu@{sha256(menu_text)[:12]}"]},
        {"name": "summary", "tokens": counted(summary) if summary else 0,
         "source": folded(boundary, [seq for seq in shapes if seq < boundary])},
    ]  # fmt: skip
    found = receipt(s, boundary, shapes, {seq: counted(shown[seq]) for seq in sorted(shown)}, gone, sections)
    prefix = sha256(prompt, menu_text, str((boundary, want.eased, s.opened, s.view.folded)))[:12]
    return Window(prompt, user, menu, found, sha256(prompt, user, menu_text, agent.model), prefix)


def _shown(seq: int, shape: Shape, gone: Mapping[int, tuple[str, int]]) -> Markup:
    """The event, or in its place what it gave way to."""
    if seq not in gone:
        return shape.text
    why, by = gone[seq]
    return tag("gone", n=str(seq), why=why, by=str(by))


def _summary(s: State, boundary: int, rows: Sequence[Row], directory: Directory) -> str:
    """What stands for the events below the boundary; empty where there are none."""
    if boundary <= 1 or (boundary == 2 and s.opened == 1):
        return ""
    row = next((row for row in rows if row.seq == s.view.folded), None)
    event = revive(row.type, row.version, json.loads(row.data)) if row else None
    text = event.text if isinstance(event, Folded) else "These events are not shown any more."
    note = f"{text}\n[Events 1 to {boundary - 1} are folded into this: next_page(event=N, page=1) opens event N again.]"
    return directory.masked(tag("folded", note, n=str(s.view.folded or boundary - 1), last=str(boundary - 1)))
