"""The receipt of a window: what became of every event up to now, and what each section cost.

| key         | what                                                                            |
|-------------|---------------------------------------------------------------------------------|
| `whole`     | [seq, tokens] of what is shown as it is                                         |
| `projected` | [seq, tokens] of what is shown in part: a page, or what its tool chose to show  |
| `folded`    | [first, last] of what the summary stands for                                    |
| `summary`   | the seq of the summary itself, where it lies in the window                      |
| `dropped`   | by rule: `superseded` and `resolved` as [seq, tokens, by], `bookkeeping` as seq |
| `sections`  | name, tokens and source (file@hash, or events) of system, tools, summary, rest  |
| `total`     | the sum of the sections                                                         |

Every seq stands in exactly one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .shape import Shape
from .state import State


def receipt(
    s: State, boundary: int, shapes: Mapping[int, Shape], tokens: Mapping[int, int],
    gone: Mapping[int, tuple[str, int]], sections: Sequence[dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """The receipt; `shapes` and `tokens` are of the events in the window, `gone` is what gave way to which event."""
    present = {seq: shape for seq, shape in shapes.items() if seq not in gone}
    dropped: dict[str, list[Any]] = {"superseded": [], "resolved": []}
    for seq, (rule, by) in gone.items():
        dropped[rule].append([seq, tokens[seq], by])
    rest, mine = sum(tokens.values()), [s.view.folded] if s.view.folded >= boundary else []
    placed = {*shapes, *mine}
    all_sections = [*sections, {"name": "rest", "tokens": rest, "source": _ranges(sorted(shapes))}]
    return {
        "whole": [[seq, tokens[seq]] for seq, shape in present.items() if not shape.projected],
        "projected": [[seq, tokens[seq]] for seq, shape in present.items() if shape.projected],
        "folded": folded(boundary, [seq for seq in shapes if seq < boundary]),
        "dropped": dropped | {"bookkeeping": [n for n in range(boundary, s.seq + 1) if n not in placed]},
        "summary": mine,
        "sections": all_sections,
        "total": sum(section["tokens"] for section in all_sections),
    }


def folded(boundary: int, opening: Sequence[int]) -> list[list[int]]:
    """The ranges below the boundary that the summary stands for: all of it but the opening event."""
    edges = [0, *opening, boundary]
    return [[a + 1, b - 1] for a, b in pairwise(edges) if a + 1 <= b - 1]


def _ranges(seqs: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found


def place_of(found: Any, seq: int) -> str:
    """Where an event stands in a receipt, in words; empty where the receipt does not reach it."""
    for name in ("whole", "projected"):
        for row in found.get(name, ()):
            if row[0] == seq:
                return f"{name}, {row[1]} tokens"
    if any(first <= seq <= last for first, last in found.get("folded", ())):
        return "folded into the summary"
    if seq in found.get("summary", ()):
        return "the summary itself"
    dropped = found.get("dropped", {})
    for rule in ("superseded", "resolved"):
        for row in dropped.get(rule, ()):
            if row[0] == seq:
                return f"dropped, {rule} by event {row[2]}"
    return "dropped, bookkeeping" if seq in dropped.get("bookkeeping", ()) else ""
