"""The mailroom: every mail, whichever way it came, is matched with what it belongs to and handed on, once.

A reply finds its letter by the signed address it was sent to, else by our Message-ID. The address says which letter,
and not who answers: rights come from a sender whom our mail server proves and who is the one that was written to.
Anybody else's words are a comment of an unproven sender. Nothing that a program sent is read, and nobody unproven is
answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from triggers.envelope import Arrived, Verdict
from triggers.mail import SOURCE, Envelope, Mail, arrived, read_mail
from triggers.mail_judge import UNPROVEN, Rules, addresses

from .addresses import read_bounce, reply_token
from .answers import Reply, answer
from .card import Card
from .decisions import Refused, Wish, decide, tell
from .intake import Intake
from .question import Asking
from .registry import Registry
from .settings import Settings
from .store import approvals, inbox, mails
from .store.database import Database
from .store.inbox import Entry
from .store.mails import Sent
from .telemetry import Log

MOST_LATELY, MOST_UNPROVEN = 10, 5
"""Mails in ten minutes from one sender or in one thread, and unproven ones in an hour; more are kept unread."""
BY_COMMENT = (
    "Your mail decided nothing; it was passed on as a comment. A reply decides only by one word, yes or no, alone "
    "above what it quotes, and only at low risk. To decide, use what stands below.\n\n"
)
CLOSED = "Your mail changed nothing: {}\n"


class Mailroom:
    """Takes mails. `ring(task, what, lane)` is called after a task has news."""

    def __init__(
        self, db: Database, registry: Registry, settings: Settings, log: Log, ring: Callable[[str, str, str], None]
    ) -> None:
        self.db, self.registry, self.settings, self.log, self.ring = db, registry, settings, log, ring
        self.intake = Intake(db, registry, log)

    @cached_property
    def rules(self) -> Rules:
        """What is ours."""
        s, boxes = self.settings, self.registry.mailboxes
        return Rules(
            authserv=s.mail_authserv, domains=frozenset({s.mail_domain.lower()}),
            addresses=frozenset([*boxes, *addresses(s.smtp_sender)]),
            lists=frozenset(each for box in boxes.values() for each in box.lists),
        )  # fmt: skip

    def knows(self, address: str) -> bool:
        """Whether mail to this address is for us: an agent listens there, or we made it."""
        address = address.lower()
        if address in self.registry.mailboxes or read_bounce(self.settings, address):
            return True
        return reply_token(self.settings, address) is not None

    def receive(self, raw: bytes, envelope: Envelope) -> Verdict:
        """One mail; true after the commit, and the same at every repetition. Raises Excessive for one that is refused
        unread, and a database error when nothing was stored.
        """
        mail = read_mail(raw, envelope, self.rules)
        recipient = next(filter(self.knows, mail.recipients), "")
        item = arrived(raw, mail, tenant=self.settings.tenant, mailbox=envelope.mailbox, recipient=recipient)
        return self.take(mail, item)

    def take(self, mail: Mail, item: Arrived) -> Verdict:
        """A mail that was read by `triggers.mail` already."""
        entry = Entry(
            tenant=item.tenant, source=SOURCE, key=item.key, kind="message", type=item.type, raw=item.raw,
            headers=item.headers, sender=item.sender, conversation=item.conversation, proof=item.proof,
            cleaned=item.cleaned,
        )  # fmt: skip
        back = self._returned(mail, item.type)
        sent, signed = self._answered(mail, item.type)
        about = back or sent
        if about is not None:
            entry = replace(entry, tenant=about.tenant, conversation=about.task)
        before = mails.known(self.db, entry.tenant, SOURCE, item.key)
        if before is not None:
            return Verdict("duplicate", task_id=before[0])
        if back is not None:
            return self._bounced(back, mail, entry)
        reason = mail.ignored or ("" if item.type else "unknown_recipient") or self._flood(mail, entry)
        if not reason and sent is None and reply_token(self.settings, item.type) is not None:
            reason = "forged_token"
        if reason:
            return self.intake.ignore(entry, reason)
        if sent is None:
            return self._new(mail, item, entry)
        return self._reply(sent, mail, entry) if signed else self._comment(sent.task, mail, entry, sent)

    def _answered(self, mail: Mail, address: str) -> tuple[Sent | None, bool]:
        """The letter that the mail answers, and whether the address says so, which was made for that letter alone."""
        token = reply_token(self.settings, address)
        if token is None:
            return mails.letter_of(self.db, self.settings.tenant, mail.references), False
        sent = mails.letter(self.db, token.letter)
        return (sent, True) if sent is not None and token.given_to(self.settings, sent.recipient) else (None, True)

    def _new(self, mail: Mail, item: Arrived, entry: Entry) -> Verdict:
        refused = self._unwelcome(mail, item.type)
        if refused:
            return self.intake.ignore(entry, refused)
        task = mails.thread(self.db, item.tenant, mail.references)
        if task is not None:
            return self._comment(task, mail, entry, None)
        verdict = self.intake.accept(item)
        self._rung(verdict)
        return verdict

    def _unwelcome(self, mail: Mail, address: str) -> str:
        box = self.registry.mailboxes.get(address)
        if box is None or not box.allow:
            return ""
        if not box.allows(mail.sender):
            return "not_allowed"
        return "unproven_sender" if mail.proof == UNPROVEN else ""

    def _flood(self, mail: Mail, entry: Entry) -> str:
        """Two programs that answer each other without any sign of it are told by how much they write."""
        seen = mails.lately(self.db, entry.tenant, mail.sender, entry.conversation or "")
        if max(seen.sender, seen.thread) < MOST_LATELY and (mail.proof != UNPROVEN or seen.unproven < MOST_UNPROVEN):
            return ""
        self.log.error("mail_quarantined", sender_lately=seen.sender, thread_lately=seen.thread, key=entry.key)
        return "quarantined"

    def _reply(self, sent: Sent, mail: Mail, entry: Entry) -> Verdict:
        """An answer to one of our letters, by the address that was made for its recipient."""
        given = mail.sender == sent.recipient.lower()
        if not given:
            self.log.warning("outsider_replied", task=sent.task, letter=sent.id)
        if not given or mail.proof == UNPROVEN or not mail.own:
            return self._comment(sent.task, mail, entry, sent)
        if "question" in sent.payload:
            return self._answer(sent, mail, entry)
        if "card" in sent.payload:
            return self._decide(sent, mail, entry)
        return self._comment(sent.task, mail, entry, sent, mine=True)

    def _answer(self, sent: Sent, mail: Mail, entry: Entry) -> Verdict:
        asking = Asking.model_validate(sent.payload["question"])
        reply = Reply(
            sent.task, mail.own, mail.sender, "reply", tenant=sent.tenant, call=asking.call, asked=asking.asked
        )
        try:
            answer(self.db, reply)
        except Refused as refused:
            if refused.code == 400:  # the letter that says so is written
                return self._kept(sent, entry, "unfit")
            if refused.code in (409, 410):
                return self._closed(sent, mail, entry, str(refused))
            return self._comment(sent.task, mail, entry, sent)
        return self._acted(sent, entry, "answered")

    def _decide(self, sent: Sent, mail: Mail, entry: Entry) -> Verdict:
        card = Card.model_validate(sent.payload["card"])
        if mail.decides not in ("approved", "rejected"):
            return self._by_comment(sent, mail, entry)
        wish = Wish(
            sent.task, card.call, "approved" if mail.decides == "approved" else "rejected", mail.sender, "reply",
            tenant=sent.tenant, asked=card.asked, digest=card.digest, seen=sent.seq,
        )  # fmt: skip
        try:
            if card.cut:
                return self._by_comment(sent, mail, entry)
            decide(self.db, wish, self.registry)
        except Refused as refused:
            if refused.code == 410 or refused.decision is not None:
                return self._closed(sent, mail, entry, str(refused))
            return self._by_comment(sent, mail, entry)
        return self._acted(sent, entry, "decided")

    def _by_comment(self, sent: Sent, mail: Mail, entry: Entry) -> Verdict:
        """What decides nothing is passed on, and its sender gets the link once more."""
        verdict = self._comment(sent.task, mail, entry, sent, mine=True)
        if verdict.outcome == "accepted":
            self._notice(sent, "mail-link", mail, {**sent.payload, "instead": BY_COMMENT})
        return verdict

    def _comment(
        self, task: str, mail: Mail, entry: Entry, sent: Sent | None, *, mine: bool = False
    ) -> Verdict:  # fmt: skip
        """The words as a message for the task: as its sender's where they are proven and expected, else as nobody's."""
        trusted = mine or (sent is None and mail.proof != UNPROVEN)
        text = mail.own or mail.text
        news = replace(
            entry, task_id=task, payload={"text": text, "subject": mail.subject, "sender": mail.sender},
            proof=entry.proof if trusted else UNPROVEN,
        )  # fmt: skip
        verdict = self.intake.news(news)
        self._rung(verdict)
        if verdict.outcome == "ignored" and sent is not None and mine:
            why = f"the task is {verdict.reason.replace('_', ' ')}."
            self._notice(
                sent, "mail-closed", mail, {"subject": "Your mail changed nothing", "text": CLOSED.format(why)}
            )
        return verdict

    def _closed(self, sent: Sent, mail: Mail, entry: Entry, why: str) -> Verdict:
        """Too late: its sender, who is proven, is told politely."""
        verdict = self._kept(sent, entry, "closed")
        payload = {"subject": "Your mail changed nothing", "text": CLOSED.format(why)}
        self._notice(sent, "mail-closed", mail, payload)
        return verdict

    def _notice(self, sent: Sent, kind: str, mail: Mail, payload: dict[str, Any]) -> None:
        mails.notice(self.db, sent, kind, f"{sent.id}:{mail.message_id}", payload)

    def _acted(self, sent: Sent, entry: Entry, what: str) -> Verdict:
        self._kept(sent, entry, what)
        self.ring(sent.task, SOURCE, "answers")
        return Verdict("accepted", what, sent.task)

    def _kept(self, sent: Sent, entry: Entry, reason: str) -> Verdict:
        """The mail itself as a row beside its task, which has what it came to from another."""
        return self.intake.ignore(replace(entry, task_id=sent.task), reason)

    def _rung(self, verdict: Verdict) -> None:
        if verdict.outcome == "accepted" and verdict.task_id is not None:
            self.ring(verdict.task_id, SOURCE, "answers")

    def _returned(self, mail: Mail, address: str) -> Sent | None:
        """The letter that this mail says was not delivered: by our return address, else by the mail it returns."""
        signed = read_bounce(self.settings, address)
        if signed is not None:
            return mails.letter(self.db, signed)
        found = mails.letter_of(self.db, self.settings.tenant, mail.returned) if mail.bounced else None
        named = {each.address for each in mail.bounced}
        return found if found is not None and found.recipient.lower() in named else None

    def _bounced(self, sent: Sent, mail: Mail, entry: Entry) -> Verdict:
        """Where it is for good, the address counts as dead and the question goes to the next in line at once."""
        permanent = any(each.permanent for each in mail.bounced)
        self.log.error("letter_bounced", letter=sent.id, task=sent.task, permanent=permanent)
        if permanent:
            with self.db.transaction() as connection:
                mails.undeliverable(connection, sent)
            self._escalate(sent)
        return self.intake.ignore(replace(entry, task_id=sent.task), "bounce" if permanent else "bounce_for_now")

    def _escalate(self, sent: Sent) -> None:
        if "card" not in sent.payload:
            return
        card = Card.model_validate(sent.payload["card"])
        with self.db.transaction() as connection:
            inbox.lock(connection, sent.task)
            row = approvals.question(connection, sent.tenant, sent.task, card.call, card.asked)
            if row is None or not row.open or row.state not in ("pending", "reminded") or not row.asks.escalate_to:
                return
            data = {"call": card.call, "to": "escalated", "reason": approvals.UNDELIVERABLE}
            tell(connection, sent.task, "decision", f"bounce:{card.call}:{card.asked}", data, "mail")
        self.ring(sent.task, SOURCE, "answers")
