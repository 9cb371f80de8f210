"""The page that the mail of a question links to: `/a/q/{token}`. It shows the question; only a POST answers it.

The form is `application/x-www-form-urlencoded` and goes to the page's own address; its one field is `answer`, and
nothing is chosen beforehand. Answers: 200 shown or answered (the same again for the same answer), 400 it does not fit
and the question stays open, 404 no such link, 409 answered otherwise, 410 no longer open. An answer permits nothing, so
the link is enough. What holds for the token of an approval's page holds for this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from starlette.responses import Response
from starlette.routing import Route

from twelvefold.text import reveal
from workers.answers import Reply, answer, answer_of
from workers.card import unlinked
from workers.decisions import Refused
from workers.links import ANSWER_PATH, Link, Links
from workers.question import Asking
from workers.store import approvals, questions
from workers.store.database import Database
from workers.store.questions import Question
from workers.telemetry import Log

from . import linked
from .linked import NOWHERE, opened
from .page import page


@dataclass(frozen=True, slots=True)
class Shown:
    """One question as its page shows it."""

    link: Link
    asking: Asking
    row: Question


def routes(db: Database, links: Links | None, ring: Callable[[str, str, str], None], log: Log) -> list[Route]:
    """The routes of the page; none where no links are made. `ring(task, agent, lane)` is called after an answer."""
    if links is None:
        return []

    return linked.routes(
        ANSWER_PATH, links, log, lambda token: _page(_look(db, links, token)),
        lambda token, form: _answer(db, links, token, form.get("answer", ""), ring),
    )  # fmt: skip


def _look(db: Database, links: Links, token: str) -> Shown:
    link = opened(links, token)
    with db.connection() as connection:
        rows = questions.find(connection, link.tenant, link.task, link.call, link.asked)
        sent = approvals.card(connection, link.tenant, f"{link.task}:email:{link.approver}", link.asked)
    if not rows or sent is None:
        raise NOWHERE
    return Shown(link, Asking.model_validate(sent), rows[0])


def _answer(db: Database, links: Links, token: str, text: str, ring: Callable[[str, str, str], None]) -> Response:
    shown = _look(db, links, token)
    link = shown.link
    reply = Reply(link.task, text, link.approver, "link", tenant=link.tenant, call=link.call, asked=link.asked)
    try:
        answer(db, reply)
    except Refused as refused:
        return _page(_look(db, links, token), refused.code, str(refused))
    ring(link.task, shown.asking.agent, "answers")
    return _page(_look(db, links, token))


def _page(shown: Shown, status: int = 200, said: str = "") -> Response:
    asking, row = shown.asking, shown.row
    standing = answer_of(row)
    if status == 200 and not row.open and standing is None:
        status = 410
    notice = f"<p class='notice' role='alert'>{escape(said)}</p>" if said else ""
    if standing is not None:
        notice += f"<p class='notice'>This was {escape(str(standing))}: {escape(reveal(standing.text))}</p>"
    elif not row.open:
        notice += "<p class='notice'>This is no longer open.</p>"
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in asking.facts)
    context = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in asking.context)
    body = (
        f"{notice}<section><h2>Facts</h2><dl>{facts}</dl></section>"
        f"<section class='says'><h2>The agent asks</h2><p>{escape(unlinked(reveal(asking.question.reason)))}</p>"
        f"<dl>{context}</dl><p class='small'>Nobody checked this.</p></section>{_form(asking) if row.open else ''}"
    )
    return page(asking.title, body, status)


def _form(asking: Asking) -> str:
    options = asking.question.options
    choices = "".join(
        f"<p><label><input type='radio' name='answer' value='{escape(option)}' required> "
        f"{escape(unlinked(reveal(option)))}</label></p>"
        for option in options
    )
    text = "<p><label>Your answer <input name='answer' required maxlength='4000' autocomplete='off'></label></p>"
    return (
        "<section><h2>Answer</h2><p>It is passed on to the agent and permits nothing.</p>"
        f"<form method='post'>{choices or text}<p><button>Answer</button></p></form></section>"
    )
