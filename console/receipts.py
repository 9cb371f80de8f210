"""What a model saw: the receipt of one question, and each question that saw an event. For the command line and the API;
there are numbers and names in it, and nothing of what was said.
"""

from __future__ import annotations

from typing import Any

from twelvefold.receipt import place_of
from workers.store import receipts
from workers.store.database import Database

Row = dict[str, Any]


def saw(db: Database, task_id: str, event: int) -> list[Row]:
    """Each question after an event, with where the event stands in its window."""
    rows = receipts.since(db, task_id, event)
    return [{"seq": row["seq"], "at": row["at"], "how": place_of(row["receipt"], event)} for row in rows]


def told(row: Row) -> list[str]:
    """A receipt in lines."""
    receipt = row["receipt"]
    head = f"question {row['seq']} to {row['model']} at {row['at']:%Y-%m-%d %H:%M:%S}: {receipt['total']} tokens"
    lines = [head + (", begins anew" if row["broke"] else "")]
    for section in receipt["sections"]:
        source = ", ".join(_range(part) for part in section["source"])
        lines.append(f"  {section['name']:<8} {section['tokens']:>6}  {source or '-'}")
    seqs = sorted(
        [row[0] for name in ("whole", "projected") for row in receipt[name]]
        + [row[0] for rule in ("superseded", "resolved") for row in receipt["dropped"][rule]]
    )
    lines += [f"  event {seq:<6} {place_of(receipt, seq)}" for seq in seqs]
    hidden = receipt["dropped"]["bookkeeping"]
    lines += [f"  folded   {', '.join(_range(part) for part in receipt['folded'])}"] if receipt["folded"] else []
    return lines + ([f"  hidden   {', '.join(map(str, hidden))} (bookkeeping)"] if hidden else [])


def _range(part: Any) -> str:
    """A source: a file at its hash, or events from one to another."""
    if isinstance(part, str):
        return part
    first, last = part
    return f"event {first}" if first == last else f"events {first} to {last}"
