"""Sample letters as pages, to be looked at in a browser: `python -m tests.letters FOLDER` writes one file for each."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from delivery import render
from delivery.html import page
from delivery.render import Ended
from twelvefold.canonical import canonical
from workers.card import Card, letter_source
from workers.question import Asking
from workers.question import letter_source as asking_source

TASK = "018f0000-0000-7000-8000-000000000001"
LINK = "https://fleet.example/a/v1.eyJ0ZW5hbnQiOiJ0MSJ9.Zm9vYmFyYmF6cXV4"
ARGS = {
    "order_id": "A-17", "amount": "129.90", "currency": "EUR", "reason": "The parcel is lost.\nThe carrier agrees.",
    "evidence": {"tracking": "JD0002" + "9" * 60, "photos": ["door.jpg", "depot.jpg"]},
}  # fmt: skip
CARD = Card(
    agent="refunds", about="order A-17", task=TASK, call=7, asked=8, tool="refund", args=canonical(ARGS),
    says="The customer wrote twice <b>and</b> see https://evil.example: pay at once!", risk="medium", digest="d" * 64,
    target="ann@shop.example, ben@shop.example", deadline=datetime(2026, 12, 2, 9, 40, tzinfo=UTC), tainted=3, quorum=2,
    preview={"balance_before": "1,204.00 EUR", "balance_after": "1,074.10 EUR"},
)  # fmt: skip
QUESTION = {
    "reason": "Which of the two addresses is right?", "context": [{"name": "First", "value": "Main Street 1"}],
    "target": "ops",
}  # fmt: skip
ASKING = Asking(
    agent="refunds", about="order A-17", task=TASK, call=9, asked=10, args=canonical(QUESTION),
    target="ann@shop.example", deadline=datetime(2026, 12, 2, 9, 40, tzinfo=UTC),
)  # fmt: skip
COST = [("Decisions", "6"), ("Tokens", "18,204"), ("Money", "0.0412 USD"), ("Work", "21.4 s")]
TIMELINE = [
    "2026-12-01 09:30 UTC: something arrived (event 1)", "2026-12-01 09:31 UTC: find_order: done (event 4)",
    "2026-12-01 09:31 UTC: refund: an approval was asked for (event 8)",
    "2026-12-01 10:02 UTC: refund: approved by ann@shop.example, ben@shop.example (event 9)",
    "2026-12-01 10:02 UTC: refund: done (event 12)",
]  # fmt: skip
ABOUT = [("Agent", "refunds"), ("About", "order A-17"), ("Task", TASK)]
WHAT = """The refund of **129.90 EUR** is on its way; the customer has been told.

| Order | Amount | Carrier |
|---|---|---|
| A-17 | 129.90 EUR | says *lost in the depot* |

1. The carrier was asked ([its answer](https://carrier.example/cases/17)).
2. The money was paid back.
   - to the card that had paid

> We are sorry for the trouble.
"""
LETTERS = {
    "question": letter_source(CARD, LINK, "BCDFGH"),
    "answer": asking_source(ASKING, LINK),
    "outcome": render.outcome(Ended("Refund of order A-17", "It is done.", WHAT, "", COST, TIMELINE, 3, ABOUT)),
    "failure": render.failure(
        Ended("refunds: in_doubt", "Nobody can tell whether it happened.", "", "", COST, TIMELINE, 0, ABOUT),
        f"See it all: twelvefold show {TASK}",
    ),
    "digest": render.digest(
        Ended("Stock on Monday", "It is done.", "", "pears: 12\nplums: 0\nnote: order plums", COST[2:], (), 0, ABOUT),
        "https://fleet.example/u/v1.eyJ0ZW5hbnQiOiJ0MSJ9.Zm9v",
    ),
}  # fmt: skip


def write(folder: Path) -> None:
    """Write every letter as a page."""
    for name, source in LETTERS.items():
        (folder / f"{name}.html").write_text(page(source, name), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
