"""Read anew what reached us and opened nothing: its reader raised, or no agent listened to it then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from triggers.adapter import Received, Source
from triggers.envelope import Arrived, Verdict
from triggers.problem import Problem
from twelvefold.text import inspect_json
from workers.intake import Intake
from workers.store import inbox
from workers.store.database import Database

AGAIN = (("failed", "mapping"), ("ignored", "no_binding"))


class NotAgain(Exception):
    """It cannot be read anew; `code` is what an HTTP answer says: 404 or 409."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def again(db: Database, intake: Intake, sources: Mapping[str, Source], id: int, tenant: str | None = None) -> Verdict:
    """Read an arrival with the agents of now: `accepted`, `ignored` or `failed` as at the first time. Raises NotAgain.

    A webhook is translated from its bytes, whose signature was verified when they came.
    """
    found = db.rows(inbox.UNREAD, {"tenant": tenant, "id": id})
    if not found:
        raise NotAgain(404, f"There is no arrival {id}. See them: twelvefold arrivals")
    row = found[0]
    if (row["state"], row["reason"]) not in AGAIN:
        became = f"{row['state']}({row['reason']})" if row["reason"] else row["state"]
        raise NotAgain(409, f"Arrival {id} is {became}. Only what failed, or what nobody listened to, is read anew.")
    return intake.accept(_arrived(row, sources.get(row["source"])), again=id)


def _arrived(row: Mapping[str, Any], source: Source | None) -> Arrived:
    payload, cleaned = row["payload"], 0
    if source is not None and source.translator is not None and row["raw"] is not None:
        headers = tuple((row["headers"] or {}).items())
        try:
            said = source.translator.translate(Received(row["source"], row["raw"], headers, datetime.now(UTC)))
        except Problem as problem:
            raise NotAgain(409, f"Its bytes cannot be read: {problem.detail}") from None
        gate = inspect_json(said.payload)
        payload, cleaned = gate.value, gate.changed
    if payload is None:
        raise NotAgain(409, f"What came from {row['source']} cannot be read anew: only its bytes were kept.")
    return Arrived(
        tenant=row["tenant"], source=row["source"], key=row["key"], type=row["type"], payload=payload,
        raw=row["raw"] or b"", headers=row["headers"] or {}, sender=row["sender"], conversation=row["conversation"],
        proof=row["proof"] or "", cleaned=cleaned,
    )  # fmt: skip
