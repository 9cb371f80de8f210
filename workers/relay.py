"""The relay: one outbox row to its channel, sent without a transaction open, settled by its claim token.

A row holds what is said; only here a question gets its link and its word, which are stored nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from uuid import uuid4

from twelvefold.ports import Channel, Letter, NotSent, PerhapsSent

from . import question
from .card import Card, letter_text
from .chances import patiently
from .intake import put
from .links import ANSWER_PATH, Link, from_settings
from .outgoing import TASK_CHANNEL
from .question import Asking
from .store import approvals, inbox, outbox, questions
from .store.inbox import Entry
from .store.outbox import Taken
from .telemetry import kind_of
from .work import Runtime

SEND_S = 60.0
STALLED_S = 5.0
"""Who needed so long to begin might be overtaken before the end: SEND_S covers this and the longest way out."""
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 3600.0
ATTEMPTS = 56
"""About two days."""
LINK_LIVES = timedelta(days=1)
"""So long after the deadline a link still shows what became of the question."""


def deliver(letter_id: str, run: Runtime, channels: Mapping[str, Channel]) -> str:
    """Push one row. Returns its new state, or `nothing` when it was not there to be taken."""
    began, claim = monotonic(), uuid4()
    taken = patiently(run, lambda: outbox.take(run.db, letter_id, claim, SEND_S))
    if taken is None:
        return "nothing"
    if taken.channel == TASK_CHANNEL:
        return _to_task(taken, run)
    channel = channels.get(taken.channel)
    if channel is None:
        return _settle(run, taken, "failed", error=f"no channel named {taken.channel}")
    try:
        letter = _letter(taken, run)
    except NotSent as error:
        return _not_sent(run, taken, error)
    except Exception as error:  # whatever it is, nothing has gone out
        return _not_sent(run, taken, NotSent(f"the letter could not be written: {kind_of(error)}", retry=True))
    if monotonic() - began > STALLED_S:
        return _not_sent(run, taken, NotSent("the relay stood still after it had taken the letter", retry=True))
    try:
        receipt = channel.push(letter)
    except NotSent as error:
        return _not_sent(run, taken, error)
    except (PerhapsSent, Exception) as error:
        run.log.error("send_unknown", letter=taken.id, channel=taken.channel, error=kind_of(error))
        return _settle(run, taken, "unknown", error="the answer was lost; it may have gone out")
    return _settle(run, taken, "sent", receipt=receipt.reference, error="; ".join(receipt.refused) or None)


def _letter(taken: Taken, run: Runtime) -> Letter:
    """The letter as it goes out. A result answers the last question of its conversation, in whose thread mail programs
    show it only under the same subject.
    """
    p = taken.payload
    at = datetime.fromisoformat(p["at"]) if "at" in p else taken.created_at
    before = outbox.earlier(run.db, taken)
    asked = [letter.subject for letter in before if letter.asks]
    subject, text = p.get("subject", ""), p.get("text", "")
    if "card" in p:
        text = _question(taken, run, Card.model_validate(p["card"]))
    elif "question" in p:
        text = _asking(taken, run, Asking.model_validate(p["question"]))
    elif asked:
        subject, text = f"Re: {asked[-1]}", f"{subject}\n\n{text}"
    return Letter(
        id=taken.id, channel=taken.channel, recipient=taken.recipient, subject=subject, text=text, created_at=at,
        follows=tuple(letter.id for letter in before),
    )  # fmt: skip


def _question(taken: Taken, run: Runtime, card: Card) -> str:
    """The text that asks. Raises NotSent when the question was over before it could be asked."""
    with run.db.connection() as connection:
        row = approvals.question(connection, taken.tenant, card.task, card.call, card.asked)
    if row is None or not row.open:
        raise NotSent("the question was over before it was sent", retry=False)
    links = from_settings(run.settings)
    if links is None:
        return letter_text(card, None, None)
    link = _link(taken, card)
    return letter_text(card, links.address(link), links.word(link) if card.word else None)


def _asking(taken: Taken, run: Runtime, asking: Asking) -> str:
    """The text of a question to be answered. Raises NotSent as `_question` does."""
    with run.db.connection() as connection:
        rows = questions.find(connection, taken.tenant, asking.task, asking.call, asking.asked)
    if not rows or not rows[0].open:
        raise NotSent("the question was over before it was sent", retry=False)
    links = from_settings(run.settings)
    return question.letter_text(asking, None if links is None else links.address(_link(taken, asking), ANSWER_PATH))


def _link(taken: Taken, asked: Card | Asking) -> Link:
    return Link(
        tenant=taken.tenant,
        task=asked.task,
        call=asked.call,
        asked=asked.asked,
        approver=taken.recipient,
        expires=int((asked.deadline + LINK_LIVES).timestamp()),
    )


def _not_sent(run: Runtime, taken: Taken, error: NotSent) -> str:
    final = not error.retry or taken.attempts >= ATTEMPTS
    run.log.warning("not_sent", letter=taken.id, channel=taken.channel, attempt=taken.attempts, final=final)
    if final:
        return _settle(run, taken, "failed", error=error.reason)
    wait = max(error.retry_after or 0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (taken.attempts - 1)))
    return _settle(run, taken, "pending", error=error.reason, wait=wait)


def _settle(
    run: Runtime, taken: Taken, state: str, *, receipt: str | None = None, error: str | None = None, wait: float = 0
) -> str:  # fmt: skip
    def settle() -> bool:
        with run.db.connection() as connection:
            return outbox.settle(connection, taken, state, receipt=receipt, error=error, wait=wait)

    # what is known now nobody would know later: a database that is away for a while is waited for
    return state if patiently(run, settle) else "lost"


def _to_task(taken: Taken, run: Runtime) -> str:
    """News for another task: the arrival and the settled row are one commit, and only one task row is touched."""
    p = taken.payload
    entry = Entry(
        tenant=taken.tenant, source="task", key=taken.key, kind=p["kind"], task_id=taken.recipient,
        payload=p.get("data"), wait_key=p.get("wait_key"), proof=p.get("proof"),
    )  # fmt: skip
    with run.db.transaction() as connection:
        if p["kind"] == "cancel":
            inbox.ask_cancel(connection, taken.recipient)
        verdict = put(connection, entry, person=False)
        outbox.settle(connection, taken, "sent", receipt=verdict.outcome)
    return "sent"
