"""What a model was sent: the bytes of a request as they went out, and from which files they came."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from workers.prompts import Gone, hashes, joined
from workers.store import texts
from workers.store.database import Database

__all__ = ["Gone", "Sent", "sent"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. `parts` are the prompt files of its system message: file, hash, first line there, commit."""

    seq: int
    model: str
    role: str
    request: str
    body: str
    parts: tuple[dict[str, Any], ...]

    def as_row(self) -> dict[str, Any]:
        """As plain data."""
        return {"seq": self.seq, "model": self.model, "role": self.role, "request": self.request,
                "parts": list(self.parts), "body": self.body}  # fmt: skip


def sent(db: Database, task_id: str, seq: int) -> Sent | None:
    """The request that event `seq` is or answers; None when no model was asked up to it. Raises Gone where the bytes
    cannot be had any more, or are not those that were sent.
    """
    found = texts.asked(db, task_id, seq)
    if found is None:
        return None
    at, data = found
    made_of = data.get("made_of")
    if made_of is None:
        raise Gone("This request was made before its texts were stored.")
    stored = texts.of_request(db, task_id, hashes(made_of))
    body = joined(made_of, data["request"], stored)
    return Sent(
        at, json.loads(body)["model"], data.get("role", "decide"), data["request"], body,
        tuple(_parts(made_of["system"], stored, texts.sources(db, made_of["system"]))),
    )  # fmt: skip


def _parts(system: list[str], stored: dict[str, str], sources: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    found, line = [], 1
    for name in system:
        if name in sources:
            file, commit = sources[name]
            found.append({"file": file, "hash": name, "line": line, "commit": commit})
        line += stored[name].count("\n")
    return found
