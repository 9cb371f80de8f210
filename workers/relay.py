"""The relay: one outbox row to its channel, sent without a transaction open, settled by its claim token."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import uuid4

from twelvefold.ports import Channel, Letter, NotSent, PerhapsSent

from .intake import put
from .outgoing import TASK_CHANNEL
from .store import inbox, outbox
from .store.inbox import Entry
from .store.outbox import Taken
from .telemetry import kind_of
from .work import Runtime

SEND_S = 60.0
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 3600.0
ATTEMPTS = 12


def deliver(letter_id: str, run: Runtime, channels: Mapping[str, Channel]) -> str:
    """Push one row. Returns its new state, or `nothing` when it was not there to be taken."""
    taken = outbox.take(run.db, letter_id, uuid4(), SEND_S)
    if taken is None:
        return "nothing"
    if taken.channel == TASK_CHANNEL:
        return _to_task(taken, run)
    channel = channels.get(taken.channel)
    if channel is None:
        return _settle(run, taken, "failed", error=f"no channel named {taken.channel}")
    try:
        receipt = channel.push(_letter(taken))
    except NotSent as error:
        return _not_sent(run, taken, error)
    except (PerhapsSent, Exception) as error:
        run.log.error("send_unknown", letter=taken.id, channel=taken.channel, error=kind_of(error))
        return _settle(run, taken, "unknown", error="the answer was lost; it may have gone out")
    return _settle(run, taken, "sent", receipt=receipt.reference)


def _letter(taken: Taken) -> Letter:
    p = taken.payload
    at = datetime.fromisoformat(p["at"]) if "at" in p else taken.created_at
    return Letter(
        id=taken.id, channel=taken.channel, recipient=taken.recipient, subject=p.get("subject", ""),
        text=p.get("text", ""), created_at=at,
    )  # fmt: skip


def _not_sent(run: Runtime, taken: Taken, error: NotSent) -> str:
    final = not error.retry or taken.attempts >= ATTEMPTS
    run.log.warning("not_sent", letter=taken.id, channel=taken.channel, attempt=taken.attempts, final=final)
    if final:
        return _settle(run, taken, "failed", error=error.reason)
    wait = error.retry_after or min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (taken.attempts - 1))
    return _settle(run, taken, "pending", error=error.reason, wait=wait)


def _settle(
    run: Runtime, taken: Taken, state: str, *, receipt: str | None = None, error: str | None = None, wait: float = 0
) -> str:  # fmt: skip
    with run.db.connection() as connection:
        ours = outbox.settle(connection, taken, state, receipt=receipt, error=error, wait=wait)
    return state if ours else "lost"


def _to_task(taken: Taken, run: Runtime) -> str:
    """News for another task: the arrival and the settled row are one commit, and only one task row is touched."""
    p = taken.payload
    entry = Entry(
        tenant=taken.tenant, source="task", key=taken.key, kind=p["kind"], task_id=taken.recipient,
        payload=p.get("data"), wait_key=p.get("wait_key"),
    )  # fmt: skip
    with run.db.transaction() as connection:
        if p["kind"] == "cancel":
            inbox.ask_cancel(connection, taken.recipient)
        verdict = put(connection, entry, person=False)
        outbox.settle(connection, taken, "sent", receipt=verdict.outcome)
    return "sent"
