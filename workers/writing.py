"""A row of the outbox as the letter that goes out. A row holds what is said; only here a question gets its link and its
word, which are stored nowhere.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from delivery.markdown import joined, words
from delivery.plain import plain
from twelvefold.ports import Letter, NotSent
from twelvefold.text import MARKER

from . import leaving, question, results
from .addresses import bounce_address, reply_address
from .card import Card, letter_source
from .leaving import Reader
from .links import ANSWER_PATH, Link, from_settings
from .question import Asking
from .store import approvals, digests, outbox, questions
from .store.outbox import Earlier, Taken
from .work import Runtime

LINK_LIVES = timedelta(days=1)
"""So long after the deadline a link still shows what became of the question."""


class Pointless(NotSent):
    """What the letter says no longer matters to anybody, so nobody misses it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retry=False)


def written(taken: Taken, run: Runtime) -> Letter:
    """The letter as it goes out. A result answers the last question of its conversation, in whose thread mail programs
    show it only under the same subject. That a question is over is told to whoever was asked it. Raises Pointless.
    """
    p = taken.payload
    at = datetime.fromisoformat(p["at"]) if "at" in p else taken.created_at
    before = outbox.earlier(run.db, taken)
    over, leave = p.get("over"), _leave(taken, run)
    asked = [letter.subject for letter in before if letter.asks is not None and over in (None, letter.asks)]
    if over is not None and not asked:
        raise Pointless("the question that is over had never been sent")
    subject, source, text = p.get("subject", ""), _source(taken, run, leave), p.get("text", "")
    if asked and not ("card" in p or "question" in p):
        subject, text = f"Re: {asked[-1]}", f"{subject}\n\n{text}"
    elif "thread" in p:  # a mail program shows it in the thread of the mail that it answers only under its subject
        subject, text = p["thread"], f"{subject}\n\n{text}"
    if over is not None:
        source = joined([f"**{words(asked[-1] or '')}**", words(p.get("text", ""))])
    if "instead" in p:
        source, text = source and f"{words(p['instead'])}\n\n{source}", f"{p['instead']}{text}"
    envelope = _envelope(taken, run, leave)
    if envelope.get("headers"):  # it can be answered by mail: what a reply has below this line is ours
        source, text = source and f"{words(MARKER)}\n\n{source}", f"{MARKER}\n\n{text}"
    return Letter(
        id=taken.id, channel=taken.channel, recipient=taken.recipient, subject=subject,
        text=plain(source) if source else text, source=source, created_at=at,
        follows=tuple(letter.id for letter in before), data=_data(taken), choices=_choices(taken),
        in_reply_to=p.get("answers"), references=tuple(p.get("chain", ())),
        replaces=_originals(taken, before),
        thread=next((letter.receipt for letter in before if letter.receipt), ""), **envelope,
    )  # fmt: skip


def _choices(taken: Taken) -> bool:
    return "card" in taken.payload and not Card.model_validate(taken.payload["card"]).cut


def _data(taken: Taken) -> dict[str, Any]:
    """What programs read of it: the result, or the facts of the question."""
    p = taken.payload
    if "result" in p:
        r = p["result"]
        return {"type": f"run.{r['status']}", "task": taken.task_id, **r}
    for name, kind in (("card", "approval.asked"), ("question", "question.asked")):
        if name in p:
            return {"type": kind, "task": taken.task_id, name: p[name]}
    return {"task": taken.task_id}


def _source(taken: Taken, run: Runtime, leave: str | None) -> str:
    """What it says, as Markdown; empty for a letter that has nothing but its text. `leave`: see `_leave`."""
    p = taken.payload
    if "card" in p:
        return _question(taken, run, Card.model_validate(p["card"]))
    if "question" in p:
        return _asking(taken, run, Asking.model_validate(p["question"]))
    return results.source(run.db, taken, leave or "") if "result" in p else ""


def _leave(taken: Taken, run: Runtime) -> str | None:
    """Where the reader of a digest ends it; None for other letters. Raises Pointless when they did."""
    if not taken.payload.get("digest"):
        return None
    agent = taken.payload["result"]["agent"]
    if not digests.wanted(run.db, taken.tenant, agent, taken.recipient):
        raise Pointless("its reader wants no more digests of this agent")
    return leaving.address(run.settings, Reader(tenant=taken.tenant, agent=agent, recipient=taken.recipient))


def _envelope(taken: Taken, run: Runtime, leave: str | None) -> dict[str, Any]:
    """Where a mail is answered and bounces to, signed; nothing for other channels, or where no mail comes in."""
    if taken.channel != "email":
        return {}
    answers = reply_address(run.settings, taken.id, taken.recipient)
    headers = {"Reply-To": answers} if answers else {}
    if leave:
        headers |= {"List-Unsubscribe": f"<{leave}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return {"bounces": bounce_address(run.settings, taken.id) or "", "headers": headers}


def _originals(taken: Taken, before: list[Earlier]) -> tuple[str, ...]:
    """The receipts of the letters that this one takes the place of: one by name, or every copy of a question that is
    over, where what was sent can be changed. Raises Pointless when the one that it names never arrived.
    """
    p = taken.payload
    if "over" in p and taken.channel == "slack":
        return tuple(letter.receipt for letter in before if letter.asks == p["over"] and letter.receipt)
    if "edits" not in p:
        return ()
    found = tuple(letter.receipt for letter in before if letter.key == p["edits"] and letter.receipt)
    if not found:
        raise Pointless("the letter that this one changes never arrived")
    return found


def _question(taken: Taken, run: Runtime, card: Card) -> str:
    """What asks. Raises NotSent when the question was over before it could be asked."""
    with run.db.connection() as connection:
        row = approvals.question(connection, taken.tenant, card.task, card.call, card.asked)
        votes = [] if row is None else approvals.votes(connection, row)
    if row is None or not row.open:
        raise Pointless("the question was over before it was sent")
    if taken.recipient.lower() in {vote.by.lower() for vote in votes}:
        raise Pointless("who would be asked again has approved it already")
    links, link = from_settings(run.settings), _link(taken, card)
    if links is None or link is None:
        return letter_source(card, None, None)
    return letter_source(card, links.address(link), links.word(link) if card.word else None)


def _asking(taken: Taken, run: Runtime, asking: Asking) -> str:
    """A question to be answered. Raises NotSent as `_question` does."""
    with run.db.connection() as connection:
        rows = questions.find(connection, taken.tenant, asking.task, asking.call, asking.asked)
    if not rows or not rows[0].open:
        raise Pointless("the question was over before it was sent")
    links, link = from_settings(run.settings), _link(taken, asking)
    return question.letter_source(asking, None if links is None or link is None else links.address(link, ANSWER_PATH))


def _link(taken: Taken, asked: Card | Asking) -> Link | None:
    """The link of the one who is asked; None for whoever only stands in and may not decide in that name."""
    approver = taken.payload.get("for", taken.recipient)
    if not approver:
        return None
    expires = int((asked.deadline + LINK_LIVES).timestamp())
    return Link(
        tenant=taken.tenant, task=asked.task, call=asked.call, asked=asked.asked, approver=approver, expires=expires,
    )  # fmt: skip
