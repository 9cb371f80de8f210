"""A person answers a question of an agent: through the API, on the command line, on the page that a mail links to.

All come through here, so there is one rule: who may, what fits, and the first answer wins. An answer is no decision:
it executes nothing, and a call that waits for an approval is not moved by it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from delivery.plain import quoted
from twelvefold.canonical import sha256
from twelvefold.questions import AskHuman
from twelvefold.text import clean, reveal, shorten

from .decisions import Proof, Refused, tell
from .store import copies, inbox, questions
from .store.database import Connection, Database
from .store.questions import Question

LONGEST_QUOTE = 500


@dataclass(frozen=True, slots=True)
class Reply:
    """What somebody says. `call` and `asked` name the question; without them it is the only one of the run."""

    task: str
    text: str
    by: str
    proof: Proof
    tenant: str | None = None
    call: int | None = None
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer that stands: to which call, what, by whom and when (UTC)."""

    call: int
    asked: int
    text: str
    by: str
    at: datetime

    def __str__(self) -> str:
        return f"answered by {self.by} at {self.at:%Y-%m-%d %H:%M:%S} UTC"


def answer(db: Database, reply: Reply) -> Answered:
    """Answer a question; the same again is answered alike. Raises Refused: 400 it does not fit (`kind` is `unfit`, and
    the question stays open), 403 not asked, 404 nothing was asked, 409 answered otherwise or unclear which is meant
    (`kind` is `call_id_required`), 410 no longer open.
    """
    with db.transaction() as connection:
        found = _answer(connection, reply)
    if isinstance(found, Refused):  # only now: the letter that says so is written in this very transaction
        raise found
    return found


def _answer(connection: Connection, reply: Reply) -> Answered | Refused:
    locked = inbox.lock(connection, reply.task)
    if locked is None or reply.tenant not in (None, locked[0]):
        raise Refused(404, f"There is no task {reply.task}.")
    row = _meant(questions.find(connection, locked[0], reply.task, reply.call, reply.asked), reply)
    if not may_answer(row.responders, reply.by, reply.proof):
        raise Refused(403, f"{reply.by} is not among those who are asked.")
    standing = answer_of(row)
    if standing is not None:
        if " ".join(standing.text.split()).casefold() == " ".join(clean(reply.text).split()).casefold():
            return standing
        raise Refused(409, f"Already {standing}.")
    if not row.open or row.args is None:
        raise Refused(410, f"No longer open: {row.state if row.state != 'pending' else 'expired'}.")
    try:
        text = AskHuman.model_validate_json(row.args).read_answer(clean(reply.text))
    except ValueError as error:
        return _back(connection, row, reply, f"{error} The question is still open.")
    return _write(connection, row, reply, text)


def _back(connection: Connection, row: Question, reply: Reply, why: str) -> Refused:
    """What does not fit goes back to whoever said it, by letter too where they were asked by one. The page tells it."""
    if reply.proof != "link":
        said = "\n".join(quoted(reveal(shorten(reply.text, LONGEST_QUOTE))))
        key = f"{row.task}:{row.asked}:unfit:{sha256(reply.by.lower(), reply.text)[:16]}"
        payload = {"subject": "Your answer does not fit", "text": f"You answered:\n\n{said}\n\n{why}\n"}
        questions.write_back(connection, row, to=reply.by.lower(), key=key, payload=payload)
    return Refused(400, why, kind="unfit")


def _meant(found: list[Question], reply: Reply) -> Question:
    if reply.call is not None and found:
        return found[0]
    if len(found) == 1:
        return found[0]
    if not any(row.open for row in found):
        raise Refused(404, f"Task {reply.task} has asked nothing that could be answered.")
    raise Refused(
        409, "More than one question was asked: say by its call which one you answer.", kind="call_id_required"
    )


def may_answer(named: Collection[str], by: str, proof: Proof) -> bool:
    """Whether this person is among those whom a question names. One that names nobody may be answered by whoever the
    edge lets in.
    """
    return proof == "override" or not named or by.lower() in named


def answer_of(row: Question) -> Answered | None:
    """The answer that stands on the row."""
    if row.answer is None:
        return None
    return Answered(row.call, row.asked, row.answer, row.answered_by or "", row.answered_at)


def _write(connection: Connection, row: Question, reply: Reply, text: str) -> Answered:
    at = questions.answered(connection, row, text, reply.by, reply.proof)
    if at is None:  # its deadline passed between the two statements
        raise Refused(410, "No longer open: expired.")
    data = {"call": row.call, "to": "answered", "by": reply.by, "result": text}
    tell(connection, reply.task, "decision", f"decision:{row.call}:{row.asked}", data, reply.by)
    come = Answered(row.call, row.asked, text, reply.by, at)
    copies.tell(connection, row.tenant, row.task, row.asked, f"This was {come}.", but=reply.by)
    return come
