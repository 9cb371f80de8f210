"""The states of a question, a test for each row of their table: from what, by what, to what, and what else is true
after the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.deciding import ANN, BEN, CLEO, Waits, waits
from twelvefold import ask
from twelvefold.canonical import canonical
from twelvefold.events import ApprovalMoved
from workers.operate import Refused

TWO = f"{ANN}, {BEN}"
RULES: dict[str, dict[str, Any]] = {
    "quorum met": {"quorum": 2}, "quorum incomplete": {"quorum": 2}, "parks": {"at_expiry": "park"},
    "timer": {"escalate_to": CLEO},
}  # fmt: skip


def letters(w: Waits) -> list[tuple[str, int, bool]]:
    """Recipient, call and whether it is the last word, of every letter in order."""
    rows = w.fleet.run.db.rows("SELECT recipient, payload FROM outbox WHERE channel = 'email' ORDER BY n")
    return [(r["recipient"], r["payload"].get("card", {}).get("call", 0), "over" in r["payload"]) for r in rows]


def task(w: Waits) -> str:
    """The task's status and what it waits for."""
    row = w.fleet.row(w.task)
    return f"{row['status']} {row['waiting_for']}" if row["status"] == "waiting" else str(row["status"])


def last(w: Waits) -> ApprovalMoved:
    """The last move that the log has."""
    return w.moves()[-1]


def asked(w: Waits) -> None:
    """Selected, and the policy says ask -> pending."""
    row = w.row
    assert (row["state"], row["target"], task(w)) == ("pending", TWO, "waiting approval")
    assert row["deadline"] - row["created_at"] >= timedelta(hours=23) and len(row["digest"]) == 64
    assert letters(w) == [(ANN, row["call"], False), (BEN, row["call"], False)]


def timer(w: Waits) -> None:
    """Timer -> reminded, escalated: the same call, and the next timer."""
    for name, state, to in (("remind_at", "reminded", [ANN, BEN]), ("escalate_at", "escalated", [CLEO])):
        before = len(letters(w))
        w.over(name)
        w.fleet.drain(w.task)
        assert (w.row["state"], task(w)) == (state, "waiting approval")
        assert letters(w)[before:] == [(who, w.row["call"], False) for who in to]
    call = w.fleet.state(w.task).call
    assert call is not None and call.due == w.row["deadline"] and call.escalate_at is None


def quorum_incomplete(w: Waits) -> None:
    """Approved by too few -> unchanged, and a vote."""
    assert w.says(ANN).state == "voted"
    assert (w.row["state"], task(w), w.fleet.one("SELECT count(*) FROM votes")) == ("pending", "waiting approval", 1)


def quorum_met(w: Waits) -> None:
    """Approved by enough -> approved, and the task goes on."""
    w.says(ANN)
    assert w.says(BEN).state == "approved"
    assert (w.row["state"], task(w)) == ("approved", "ready") and w.row["valid_until"] is not None
    assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"] and w.row["used_at"] is not None


def approved_with_edits(w: Waits) -> None:
    """Approved with edits -> approved_with_edits: validated, judged, a digest of its own, what changed in the log."""
    before = w.row["digest"]
    with pytest.raises(Refused) as refused:
        w.says(ANN, edited=canonical({"count": 1000}))
    assert refused.value.code == 400 and w.row["state"] == "pending"
    w.says(ANN, edited=canonical({"count": 6}))
    assert (w.row["state"], task(w)) == ("approved_with_edits", "ready") and w.row["digest"] != before
    w.fleet.drain(w.task)
    assert w.sent == ["6 x a box of pears"] and last(w).changed == {"count": [5, 6]}


def rejected(w: Waits) -> None:
    """Rejected -> rejected, and the model reads why."""
    w.says(ANN, approved=False, comment="too many")
    assert (w.row["state"], task(w)) == ("rejected", "ready")
    w.fleet.drain(w.task)
    assert (last(w).to, last(w).comment, w.sent) == ("rejected", "too many", [])


def expired(w: Waits) -> None:
    """Deadline, deny -> expired, which is no rejection, and the task goes on."""
    w.over("due")
    w.fleet.drain(w.task)
    assert (w.row["state"], last(w).to, task(w), w.sent) == ("expired", "expired", "done", [])
    assert "no rejection" in last(w).reason


def parks(w: Waits) -> None:
    """Deadline, park -> expired, and an operator has to let it be asked anew."""
    w.over("due")
    w.fleet.drain(w.task)
    assert (w.row["state"], task(w)) == ("expired", "waiting operator")


def superseded_by_cancel(w: Waits) -> None:
    """Cancelled -> superseded, and every copy says that it is no longer needed."""
    w.fleet.operate.cancel(w.task, by="root")
    w.fleet.drain(w.task)
    assert (w.row["state"], task(w)) == ("superseded", "cancelled")
    assert letters(w)[2:] == [(ANN, 0, True), (BEN, 0, True)]


def superseded_by_freeze(w: Waits) -> None:
    """Frozen before it began -> superseded, and the model is told."""
    w.says(ANN)
    w.fleet.switches.throw("freeze", "tool:send", by="root", reason="audit")
    w.fleet.drain(w.task)
    assert w.row["state"] == "superseded" and w.sent == [] and "Blocked" in w.fleet.kinds(w.task)


def decided_again_alike(w: Waits) -> None:
    """Any end, the same decision again -> unchanged, the same answer."""
    first = w.says(ANN)
    assert w.says(ANN) == w.says(BEN) == first
    w.fleet.drain(w.task)
    assert w.says(BEN) == first and w.row["state"] == "approved" and len(w.sent) == 1


def decided_again_otherwise(w: Waits) -> None:
    """Any end, another decision -> unchanged, 409 with who and when, and a row that keeps it."""
    w.says(ANN)
    with pytest.raises(Refused, match=f"Already approved by {ANN} at ") as refused:
        w.says(BEN, approved=False)
    assert refused.value.code == 409 and w.row["state"] == "approved"
    late = w.fleet.run.db.rows("SELECT sender, reason FROM arrivals WHERE state = 'ignored'")
    assert late == [{"sender": BEN, "reason": "decided_otherwise"}]


def stale(w: Waits) -> None:
    """Approved, and unusable when it was to begin -> stale, and a new question."""
    w.says(ANN)
    first = w.row
    with w.fleet.run.db.connection() as connection:
        connection.execute("UPDATE approvals SET valid_until = clock_timestamp() - interval '1 s'")
    w.fleet.drain(w.task)
    old = w.fleet.one("SELECT state FROM approvals WHERE asked = %(asked)s", asked=first["asked"])
    assert (old, w.row["state"], w.row["call"], task(w)) == ("stale", "pending", first["call"], "waiting approval")
    assert w.sent == [] and w.row["asked"] > first["asked"]


ROWS: list[Callable[[Waits], None]] = [
    asked, timer, quorum_incomplete, quorum_met, approved_with_edits, rejected, expired, parks, superseded_by_cancel,
    superseded_by_freeze, decided_again_alike, decided_again_otherwise, stale,
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_each_row_of_the_states_of_a_question(fresh_database: Any, row: Callable[[Waits], None]) -> None:
    rule = RULES.get(row.__name__.replace("_", " "), {})
    with waits(fresh_database, lambda call, task: ask(TWO, "it is due", **rule)) as w:
        row(w)
