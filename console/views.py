"""What the command line shows of the database, as lines of text: long data shortened, everything on one line."""

from __future__ import annotations

import json
from typing import Any

from twelvefold.text import one_line

NOISE = ("digest", "receipt", "raw", "request")
Row = dict[str, Any]


def short(data: Row, most: int = 110) -> str:
    """The data of an event on one line."""
    text = json.dumps({key: value for key, value in data.items() if key not in NOISE}, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def line(event: Row) -> str:
    """One event."""
    return f"{event['seq']:>4} {event['at']:%H:%M:%S} {event['type']:<13} {short(event['data'])}"


def task(row: Row) -> str:
    """One task in a list."""
    about = row["business_entity_id"] or ""
    return f"{row['id']}  {row['agent']:<12} {status_of(row):<22} step {row['current_step']:<4} {about}"


def approval(row: Row) -> str:
    """One question that waits, with how to decide it."""
    until = f"until {row['deadline']:%Y-%m-%d %H:%M}"
    return (
        f"{row['task_id']}  call {row['call']:<4} {row['agent']:<12} {row['risk']:<6} {row['target']}  {until}\n"
        f"      {row['tool']} {one_line(row['args'] or '', 100)}\n"
        f"      twelvefold approve {row['task_id']} {row['call']}"
    )


def grant(row: Row) -> str:
    """One grant: what it approves, until when, and what became of it."""
    same = ", ".join(f"{name}={value}" for name, value in row["pattern"].items())
    over = f"revoked by {row['revoked_by']}" if row["revoked_at"] else f"until {row['until']:%Y-%m-%d %H:%M}"
    where = f"of task {row['task_id']}" if row["task_id"] else ""
    return f"{row['id']}  {row['agent']} {row['tool']} {same}{where}  by {row['by']}  {over}  used {row['used']} times"


def letter(row: Row) -> str:
    """One letter of the outbox."""
    return (
        f"{row['id']}  {row['state']:<8} tries {row['attempts']:<3} {goes_of(row)}  of {row['task_id']}{error_of(row)}"
    )


def arrival(row: Row) -> str:
    """One arrival, what became of it and why."""
    became = f"{row['state']}({row['reason']})" if row["reason"] else row["state"]
    what = f"{row['source']:<8} {row['type']:<20} {one_line(row['key'], 60)}"
    held = f"  held by {', '.join(row['held_by'])}" if row["held_by"] else ""
    return f"{row['received_at']:%m-%d %H:%M:%S}  {became:<24} {what}  {row['task_id'] or ''}{held}"


def switch(row: Row) -> str:
    """One switch: what it holds, for whom, until when, by whom and why."""
    until = f"until {row['until']:%Y-%m-%d %H:%M} UTC" if row["until"] else "until it is lifted"
    whose = "every tenant" if row["tenant"] == "*" else f"tenant {row['tenant']}"
    held = f"{row['kind']:<7} {row['scope']:<20} {whose}, {until}, by {row['by']}"
    return f"{held}: {one_line(row['reason'], 80)}" if row["reason"] else held


def goes_of(row: Row) -> str:
    """Where a letter goes."""
    return f"{row['channel']} {row['recipient']}"


def error_of(row: Row) -> str:
    """Why a letter did not go out, if so."""
    return f": {row['error']}" if row["error"] else ""


def status_of(row: Row) -> str:
    """The status, and what is waited for."""
    waits = f" ({row['waiting_for']})" if row["status"] == "waiting" else ""
    return f"{row['status']}{waits}"
