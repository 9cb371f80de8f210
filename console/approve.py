"""The page that a mail's link opens: `/a/{token}`. It shows the card; only a POST decides, never a GET.

The form is `application/x-www-form-urlencoded` and goes to the page's own address:

- `decision`: `approve`, `reject`, or once `ask`: a question back, which is the comment. None is chosen beforehand.
- `digest`: the hidden field of the page that was shown; it binds the decision to what was seen.
- `seen`: likewise hidden: the newest message that the page showed. A newer one asks for another look.
- `word`: the word that stands in the mail and nowhere else. Needed above low risk; a program that opens links and
  presses buttons does not have it. Five wrong ones and this link decides nothing any more.
- `comment`: optional, read by the agent.

A call of high risk that one person decides, or one that was too long to be shown whole, has no form. Answers: 200 shown
or decided (the same again for the same decision), 400 incomplete, 403 the word is wrong or a link is not enough, 404 no
such link, 409 decided otherwise (who and when) or overtaken by a message, 410 no longer open, 413, 415, 503. A wrong or
old link tells nothing about any task.

The token is a secret: nothing logs it, the page names no other host, and `twelvefold http` keeps no access log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from starlette.responses import Response
from starlette.routing import Route

from twelvefold.grants import grantable
from twelvefold.text import one_line
from workers.card import Card, unlinked
from workers.decisions import OTHER_WAYS, Answer, Refused, Wish, closed_as, decide, decision_of
from workers.links import PATH, Link, Links
from workers.store import approvals
from workers.store.approvals import Row, Vote
from workers.store.database import Database
from workers.telemetry import Log

from . import linked
from .linked import NOWHERE, opened
from .page import page

CHOICES: dict[str, Answer] = {"approve": "approved", "reject": "rejected", "ask": "more_info"}


@dataclass(frozen=True, slots=True)
class Shown:
    """One question as its page shows it."""

    link: Link
    card: Card
    row: Row
    seen: int
    written: list[tuple[str, str]]
    votes: list[Vote]

    @property
    def form(self) -> bool:
        """Whether this page can decide."""
        return self.row.open and self.card.by_mail


def routes(db: Database, links: Links | None, ring: Callable[[str, str, str], None], log: Log) -> list[Route]:
    """The routes of the page; none where no links are made. `ring(task, agent, lane)` is called after a decision."""
    if links is None:
        return []

    return linked.routes(
        PATH, links, log, lambda token: _card_page(_look(db, links, token)),
        lambda token, form: _decide(db, links, token, form, ring),
    )  # fmt: skip


def _look(db: Database, links: Links, token: str) -> Shown:
    link = opened(links, token)
    with db.connection() as connection:
        row = approvals.question(connection, link.tenant, link.task, link.call, link.asked)
        card = approvals.card(connection, link.tenant, f"{link.task}:email:{link.approver}", link.asked)
        if row is None or card is None:
            raise NOWHERE
        seen, _ = approvals.newest_message(connection, row)
        written = approvals.written_since(connection, row, seen)
        votes = approvals.votes(connection, row)
    return Shown(link, Card.model_validate(card), row, seen, written, votes)


def _decide(
    db: Database, links: Links, token: str, form: dict[str, str], ring: Callable[[str, str, str], None]
) -> Response:
    shown = _look(db, links, token)
    chosen = CHOICES.get(form.get("decision", ""))
    if chosen is None or not form.get("digest") or not form.get("seen", "").isdecimal():
        return _card_page(shown, 400, "Nothing is decided yet: choose one of the answers.")
    if shown.form and shown.card.word and not form.get("word"):
        # no guess, so it is not counted: a program that sends empty forms must not use up a person's attempts
        return _card_page(shown, 400, "Nothing is decided yet: type the word that stands in the mail.")
    if chosen == "approved" and shown.card.cut:
        return _card_page(shown, 403, f"What was cut cannot be approved from here. {OTHER_WAYS}")
    link = shown.link
    wish = Wish(
        link.task, link.call, chosen, link.approver, "link", tenant=link.tenant, asked=link.asked,
        digest=form["digest"], comment=form.get("comment", ""), word=links.knows(link, form.get("word", "")),
        seen=int(form["seen"][:9]),
    )  # fmt: skip
    try:
        decide(db, wish)
    except Refused as refused:
        return _card_page(_look(db, links, token), refused.code, str(refused))
    ring(link.task, shown.card.agent, "answers")
    return _card_page(_look(db, links, token))


def _card_page(shown: Shown, status: int = 200, said: str = "") -> Response:
    card, decision = shown.card, decision_of(shown.row)
    if status == 200 and not shown.row.open and decision is None:
        status = 410
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in card.facts)
    preview = f"<h3>What it would do</h3><pre>{escape(card.previewed)}</pre>" if card.previewed else ""
    cut = "<p>Something had to be cut.</p>" if card.cut else ""
    body = (
        f"{_notice(said)}{_outcome(shown)}"
        f"<section><h2>Facts</h2><dl>{facts}</dl><h3>Arguments</h3><pre>{escape(card.arguments)}</pre>{preview}{cut}</section>"
        f"<section class='says'><h2>The agent says</h2><p>{escape(card.saying) or 'nothing'}</p>"
        "<p class='small'>Nobody checked this.</p></section>"
        f"{_written(shown)}{_form(shown)}"
    )
    return page(card.title, body, status)


def _notice(said: str) -> str:
    return f"<p class='notice' role='alert'>{escape(said)}</p>" if said else ""


def _outcome(shown: Shown) -> str:
    decision = decision_of(shown.row)
    if decision is not None:
        return f"<p class='notice'>This was {escape(str(decision))}.</p>"
    if not shown.row.open:
        return f"<p class='notice'>This is no longer open: {escape(closed_as(shown.row))}.</p>"
    if shown.row.state == "more_info":
        return f"<p class='notice'>{escape(shown.row.decided_by or '')} asks: {escape(shown.row.comment or '')}</p>"
    if not shown.votes:
        return ""
    votes = ", ".join(vote.by for vote in shown.votes)
    return f"<p class='notice'>Approved by {escape(votes)}: {len(shown.votes)} of {shown.card.quorum}.</p>"


def _written(shown: Shown) -> str:
    """What people wrote to the task since it asked."""
    lines = "".join(
        f"<dt>{escape(one_line(sender, 100)) or 'somebody'}</dt><dd>{escape(unlinked(one_line(text, 500)))}</dd>"
        for sender, text in shown.written
    )
    return f"<section class='says'><h2>Written since it asked</h2><dl>{lines}</dl></section>" if lines else ""


def _form(shown: Shown) -> str:
    if not shown.row.open:
        return ""
    return _decide_here(shown) + _more_ways(shown)


def _more_ways(shown: Shown) -> str:
    """What this page cannot do, with the words that do it: a link proves too little for it."""
    card = shown.card
    which, path = f"{card.task} {card.call}", f"POST /thread/{card.task}/response/{card.call}"
    ways = [("With other arguments", f"twelvefold approve {which} --edit '{{...}}'", "edited_args")]
    if grantable(shown.row.asks):
        ways += [("And for more calls", f"twelvefold approve {which} --hours 4 --this-task", "grant")]
    lines = "".join(
        f"<dt>{name}</dt><dd><code>{escape(shell)}</code>, or <code>{path}</code> with <code>{member}</code></dd>"
        for name, shell, member in ways
    )
    return f"<section><h2>More than yes and no</h2><dl>{lines}</dl></section>"


def _decide_here(shown: Shown) -> str:
    if not shown.form:
        why = "The risk is high: a link is not enough." if shown.card.risk == "high" else "Something had to be cut."
        return f"<section><h2>Decide</h2><p>{why} {escape(OTHER_WAYS)}</p></section>"
    word = (
        "<p><label>The word from the mail <input name='word' required maxlength='20' autocomplete='off'></label></p>"
        if shown.card.word
        else ""
    )
    ask_back = (
        "<label><input type='radio' name='decision' value='ask' required> Ask for more first (say what below)</label>"
        if shown.row.more_info_at is None
        else ""
    )
    return (
        "<section><h2>Decide</h2><form method='post'>"
        f"<input type='hidden' name='digest' value='{escape(shown.card.digest)}'>"
        f"<input type='hidden' name='seen' value='{shown.seen}'>"
        "<p><label><input type='radio' name='decision' value='approve' required> Approve</label> "
        "<label><input type='radio' name='decision' value='reject' required> Reject</label> "
        f"{ask_back}</p>"
        f"{word}<p><label>A note for the agent <input name='comment' maxlength='2000'></label></p>"
        "<p><button>Decide</button></p></form></section>"
    )
