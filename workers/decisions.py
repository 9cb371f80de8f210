"""A person decides about an asked call: by the page that a mail links to, by the API, by the command line.

All three come through here, so there is one rule: who may, how surely that must be known, and the first decision
wins. Each decision is one short transaction that locks the task row first; the reducer learns of it as an arrival.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from twelvefold.canonical import call_digest
from twelvefold.grants import grantable
from twelvefold.text import clean, shorten
from twelvefold.verdict import OPEN, Verdict, people

from .edits import Edit, Unfit, read_edit
from .ids import uuid7
from .intake import put
from .registry import Registry
from .store import approvals, copies, grants, inbox
from .store.approvals import Row, Vote
from .store.database import Connection, Database
from .store.inbox import Entry

Proof = Literal["link", "session", "override", "reply"]
"""How `by` is known. `reply`: a mail to the address that only they were given, whose sender a mail server proves; it
decides at low risk only. `link`: an address that a signed link proves, no more than that its mail was read. `session`:
a token of the API. `override`: somebody who may answer for every responder, as the shell with the database's password.
"""
Answer = Literal["approved", "rejected", "more_info"]
Came = Literal["approved", "approved_with_edits", "edited", "rejected", "voted", "more_info"]
"""What a wish came to. `voted`: it counts, and others have to approve too. `edited`: it is asked anew as edited.
`more_info`: the agent is asked back.
"""
ATTEMPTS = 5
"""So many wrong words, and the link decides nothing any more."""
LONGEST_COMMENT = 2000
MOST_HOURS = 7 * 24
OTHER_WAYS = "Decide on the command line (`twelvefold approve` or `deny`) or through the API."


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a call, by whom and when; `votes` of `quorum` approvals are there."""

    state: Came
    by: str
    at: datetime
    votes: int = 1
    quorum: int = 1

    def __str__(self) -> str:
        when = f"by {self.by} at {self.at:%Y-%m-%d %H:%M:%S} UTC"
        if self.state == "more_info":
            return f"the agent was asked back {when}"
        if self.state == "voted":
            return f"approved {when}, which is {self.votes} of {self.quorum} approvals"
        return f"{self.state.replace('_', ' ')} {when}"


class Refused(Exception):
    """The wish does not fit the state of things. `code` is what an HTTP answer says: 400, 403, 404, 409 or 410;
    `decision` is the one that was quicker, where there is one; `kind` is for programs: `new_information`,
    `own_request`, `unfit` or nothing.
    """

    def __init__(self, code: int, text: str, decision: Decision | None = None, kind: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.decision = decision
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants decided. `asked` names the question where the card does, else it is the newest one about the
    call; `digest` is that of the call as it was shown, `seen` the seq of the newest message beside it; `word`: whether
    the word from the mail was right; `edited`: arguments to approve in the place of those shown, as canonical JSON.
    """

    task: str
    call: int
    to: Answer
    by: str
    proof: Proof
    tenant: str | None = None
    asked: int | None = None
    digest: str | None = None
    comment: str = ""
    word: bool = False
    seen: int | None = None
    edited: str | None = None
    grant: Terms | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """For which other calls of the tool an approval shall hold, and for how many hours: those of this task alone, or
    those whose `same` arguments are as in the call that was shown.
    """

    hours: int
    this_task: bool = False
    same: tuple[str, ...] = ()


def decide(db: Database, wish: Wish, agents: Registry | None = None) -> Decision:
    """Approve or reject; an equal repeat is answered alike. An approval is a vote until enough are there; one rejection
    is enough. `agents` read the arguments that somebody edited. Raises Refused: 400 those do not fit, 403 not by this
    person or not this way, 404 no such call, 409 decided otherwise or shown differently, 410 no longer open.
    """
    with db.transaction() as connection:
        found = _decide(connection, wish, agents)
    if isinstance(found, Refused):  # only now: a wrong word is counted in this very transaction
        raise found
    return found


def _decide(connection: Connection, wish: Wish, agents: Registry | None) -> Decision | Refused:
    locked = inbox.lock(connection, wish.task)
    if locked is None or wish.tenant not in (None, locked[0]):
        return Refused(404, f"There is no task {wish.task}.")
    row = approvals.question(connection, locked[0], wish.task, wish.call, wish.asked)
    if row is None:
        return Refused(404, f"Task {wish.task} has asked nothing about call {wish.call}.")
    asks, votes = row.asks, approvals.votes(connection, row)
    said = _forbidden(row, asks, wish) or _judged(row, wish) or _voted(asks, votes, wish)
    said = said or _own(connection, row, asks, wish) or _overtaken(connection, row, wish)
    said = said or _unproved(connection, row, asks, wish)
    if said is not None:
        if isinstance(said, Refused) and said.decision is not None:
            _keep_late(connection, row, wish)
        return said
    if wish.to == "more_info":
        return _ask_back(connection, row, wish)
    if wish.edited is not None and wish.to == "approved":
        assert agents is not None, "arguments are read by the tool of an agent"
        edit = _edit(connection, row, wish.edited, agents)
        if isinstance(edit, Refused) or edit.changed:
            return edit if isinstance(edit, Refused) else _write_edited(connection, row, asks, wish, edit)
    if wish.grant is not None and wish.to == "approved":
        refused = _grant(connection, row, asks, wish, wish.grant)
        if refused is not None:
            return refused
    return _write(connection, row, asks, votes, wish)


def _keep_late(connection: Connection, row: Row, wish: Wish) -> None:
    """Who wanted otherwise after it was decided stands beside it, once; the task never reads it."""
    inbox.insert(connection, Entry(
        tenant=row.tenant, source="operate", key=f"{row.task}:late:{row.call}:{row.asked}:{wish.to}:{wish.by}",
        kind="decision", task_id=row.task, payload={"call": row.call, "to": wish.to}, sender=wish.by, state="ignored",
        reason="decided_otherwise",
    ))  # fmt: skip


def _grant(connection: Connection, row: Row, asks: Verdict, wish: Wish, terms: Terms) -> Refused | None:
    """Let this approval hold for more calls, in the transaction that writes it."""
    found = approvals.open_call(connection, row)
    if found is None:
        return Refused(410, "The call is no longer in hand.")
    agent, tool, args = found
    if wish.proof == "link" or wish.edited is not None or not grantable(asks):
        return Refused(403, "Each such call is looked at by itself. Approve this one alone.", kind="no_grant")
    given = json.loads(args)
    fits = (terms.this_task or terms.same) and given.keys() >= set(terms.same)
    if not fits or not 1 <= terms.hours <= MOST_HOURS:
        return Refused(
            400, f"A grant holds for 1 to {MOST_HOURS} hours, for this task or for calls in which some arguments are "
            f"the same: {', '.join(given) or 'this one has none'}.", kind="unfit",
        )  # fmt: skip
    # the row's verdict has addresses in the place of names; the rule is that of the verdict as the agent gave it
    rule = approvals.rule(connection, row)
    grants.give(
        connection, str(uuid7()), tenant=row.tenant, agent=agent, tool=tool, task=row.task if terms.this_task else None,
        pattern={name: given[name] for name in terms.same}, rule=rule, by=wish.by, hours=terms.hours,
    )  # fmt: skip
    return None


def _forbidden(row: Row, asks: Verdict, wish: Wish) -> Refused | None:
    named = asks.may_decide(escalated=row.escalated)
    if wish.proof == "override" or not named or wish.by.lower() in named:
        return None
    return Refused(403, f"{wish.by} is not among those who are asked.")


def _voted(asks: Verdict, votes: list[Vote], wish: Wish) -> Decision | None:
    """The same vote of the same person again; one that comes with more than that is looked at for what it brings."""
    mine = next((vote for vote in votes if vote.by.lower() == wish.by.lower()), None)
    if mine is None or wish.to != "approved" or wish.edited is not None or wish.grant is not None:
        return None
    return Decision("voted", mine.by, mine.at, len(votes), asks.quorum)


def _own(connection: Connection, row: Row, asks: Verdict, wish: Wish) -> Refused | None:
    """Four eyes: who asked for it, or edited it, may reject and not approve. That holds for every way to decide."""
    if not asks.four_eyes or wish.to != "approved" or wish.by.lower() not in approvals.requesters(connection, row):
        return None
    return Refused(403, f"{wish.by} asked for this or edited it; somebody else has to approve it.", kind="own_request")


def _judged(row: Row, wish: Wish) -> Decision | Refused | None:
    decision = decision_of(row)
    if decision is not None and wish.edited is not None and wish.edited == row.edited:
        return decision
    if wish.digest is not None and wish.digest != row.digest:
        seen = "What you saw is not what is asked now. Look at the call again and decide anew."
        return Refused(409, f"Already {decision}. {seen}" if decision else seen, decision)
    if decision is not None:
        same = decision.state == wish.to and wish.edited is None
        return decision if same else Refused(409, f"Already {decision}.", decision)
    if not row.open:
        return Refused(410, f"No longer open: {closed_as(row)}.")
    return None


def closed_as(row: Row) -> str:
    """The state of a question that cannot be decided any more; the reducer may not have seen that it expired."""
    return "expired" if row.state in OPEN else row.state


def decision_of(row: Row) -> Decision | None:
    """The decision that stands on the row."""
    match row.state:
        case "approved" | "approved_with_edits" | "rejected":
            return Decision(row.state, row.decided_by or "", row.decided_at)
        case "superseded" if row.edited is not None:
            return Decision("edited", row.decided_by or "", row.decided_at)
    return None


def _overtaken(connection: Connection, row: Row, wish: Wish) -> Refused | None:
    """Somebody wrote after the card was shown: what they say may change what the person decides."""
    if wish.seen is None:
        return None
    newest, unread = approvals.newest_message(connection, row)
    if newest <= wish.seen and not unread:
        return None
    return Refused(409, "Somebody wrote since you looked. Read it, then decide.", kind="new_information")


def _unproved(connection: Connection, row: Row, asks: Verdict, wish: Wish) -> Refused | None:
    """A mail gateway opens links and may press buttons: above low risk a link must come with the word, and where the
    risk is high with a second person too.
    """
    if wish.proof not in ("link", "reply") or row.risk == "low":
        return None
    if wish.proof == "reply":
        return Refused(403, f"The risk is {row.risk}, and a reply by mail is not enough. {OTHER_WAYS}", kind="by_reply")
    if row.risk == "high" and asks.quorum < 2:
        return Refused(403, f"The risk is high, and a link is not enough. {OTHER_WAYS}")
    tried = row.wrong_words.get(wish.by.lower(), 0)
    if tried >= ATTEMPTS:
        return Refused(403, f"There were {ATTEMPTS} wrong words, so this link decides nothing any more. {OTHER_WAYS}")
    if wish.word:
        return None
    approvals.count_wrong_word(connection, row, wish.by.lower())
    return Refused(403, f"That is not the word in the mail; {ATTEMPTS - tried - 1} attempts are left.")


def _write(connection: Connection, row: Row, asks: Verdict, votes: list[Vote], wish: Wish) -> Decision:
    comment = shorten(clean(wish.comment), LONGEST_COMMENT)
    data: dict[str, Any] = {"call": wish.call, "to": wish.to, "by": wish.by, "comment": comment}
    if wish.to == "approved":
        again = _voted(asks, votes, replace(wish, edited=None, grant=None))
        if again is not None:  # an edit that changes nothing, by somebody who has voted
            return again
        votes = [*votes, approvals.vote(connection, row, wish.by, wish.proof, comment)]
        names = [vote.by for vote in votes]
        if not asks.complete(names, everywhere=[v.by for v in votes if v.how == "override" or _stands_in(asks, v.by)]):
            return Decision("voted", wish.by, votes[-1].at, len(votes), asks.quorum)
        data |= {"by": ", ".join(names), "votes": names} if len(names) > 1 else {}
    at = approvals.decided(connection, row, wish.to, data["by"], wish.proof, comment)
    tell(connection, wish.task, "decision", f"decision:{wish.call}:{row.asked}", data, wish.by)
    return _told(connection, row, Decision(wish.to, data["by"], at, max(1, len(votes)), asks.quorum), but=wish.by)


def _ask_back(connection: Connection, row: Row, wish: Wish) -> Decision | Refused:
    """The agent is asked back, once; the question stays open, and longer."""
    said = shorten(clean(wish.comment), LONGEST_COMMENT).strip()
    if row.more_info_at is not None:
        if (row.decided_by, row.comment) == (wish.by, said):
            return Decision("more_info", wish.by, row.more_info_at, 0, row.asks.quorum)
        return Refused(409, f"{row.decided_by} has asked back already, which can be done once. Approve or reject it.")
    if not said:
        return Refused(400, "Say in the comment what you want to know. Nothing is decided.", kind="unfit")
    at = approvals.more(connection, row, wish.by, said)
    data = {"call": wish.call, "to": "more_info", "by": wish.by, "comment": said}
    tell(connection, wish.task, "decision", f"more_info:{wish.call}:{row.asked}", data, wish.by)
    return Decision("more_info", wish.by, at, 0, row.asks.quorum)


def _edit(connection: Connection, row: Row, given: str, agents: Registry) -> Edit | Refused:
    found = approvals.open_call(connection, row)
    if found is None:
        return Refused(410, "The call is no longer in hand.")
    try:
        return read_edit(agents, *found, given)
    except Unfit as error:
        return Refused(400, f"{error} Nothing is decided.", kind="unfit")


def _write_edited(connection: Connection, row: Row, asks: Verdict, wish: Wish, edit: Edit) -> Decision:
    """One person's edit is an approval. Where others have to see it, because more than one approves, the editor may
    not, or its preview is another, the question is over and the edited call is asked about anew.
    """
    comment = shorten(clean(wish.comment), LONGEST_COMMENT)
    data = {"call": wish.call, "by": wish.by, "comment": comment, "args": edit.args, "changed": edit.changed}
    if asks.quorum > 1 or asks.four_eyes or edit.previewed:
        at = approvals.decided(connection, row, "superseded", wish.by, wish.proof, comment, edited=wish.edited or "")
        data |= {"to": "edited"}
        come = Decision("edited", wish.by, at, 0, asks.quorum)
    else:
        digest = call_digest(row.task, row.call, edit.tool, edit.args, row.verdict)
        approvals.vote(connection, row, wish.by, wish.proof, comment)
        at = approvals.decided(
            connection, row, "approved_with_edits", wish.by, wish.proof, comment, digest=digest,
            edited=wish.edited or "",
        )  # fmt: skip
        data |= {"to": "approved_with_edits", "digest": digest}
        come = _told(connection, row, Decision("approved_with_edits", wish.by, at), but=wish.by)
    tell(connection, wish.task, "decision", f"decision:{wish.call}:{row.asked}", data, wish.by)
    return come


def _told(connection: Connection, row: Row, decision: Decision, *, but: str) -> Decision:
    """The decision, told to the other copies of the question. One that is asked anew says so by its new card."""
    copies.tell(connection, row.tenant, row.task, row.asked, f"This was {decision}.", but=but)
    return decision


def _stands_in(asks: Verdict, by: str) -> bool:
    """Whether this is somebody who was asked because the others did not answer."""
    return by.lower() in people(asks.escalate_to)


def tell(connection: Connection, task_id: str, kind: str, key: str, data: dict[str, Any], by: str) -> str:
    """What a person did becomes an arrival of the task; the outcome of `put`."""
    entry = Entry(
        tenant="", source="operate", key=f"{task_id}:{key}", kind=kind, task_id=task_id, payload=data,
        sender=by,
    )  # fmt: skip
    return put(connection, entry, person=True).outcome
