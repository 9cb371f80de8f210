"""Mail that comes in, on a real database: what opens a task, what answers, what decides, and what changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.mime import message_id
from tests.agents.signoff.tools import Ship
from tests.asked import DOMAIN, asked, send
from tests.curious import WHICH, ask_by, curious
from tests.hands import change
from tests.harness import Fleet, fleet
from tests.mails import ANN, TRUSTED, mail, reply_to_letter
from triggers.envelope import Verdict
from triggers.mail import Envelope
from twelvefold import Done, Text, ask, on
from twelvefold.text import MARKER
from workers.addresses import bounce_address, reply_address
from workers.mailroom import Mailroom

IN: dict[str, Any] = {
    "tenant": "t1",
    "mail_in_domain": "in.example.com",
    "mail_domain": DOMAIN,
    "mail_authserv": "mx.example.net",
}
NOTES = "notes@in.example.com"
BOSS = "boss@example.com"
MALLORY = "Authentication-Results: mx.example.net; dmarc=pass header.from=evil.example"


class Post:
    """A mailroom of a fleet, and a counter that makes each mail another one."""

    def __init__(self, f: Fleet) -> None:
        self.fleet, self.count = f, 0
        self.room = Mailroom(f.run.db, f.run.registry, f.settings, f.run.log, lambda *_: None)

    def put(
        self, text: str, *headers: str, to: str = NOTES, sender: str = ANN, mail_from: str | None = None
    ) -> Verdict:
        """One new mail."""
        self.count += 1
        raw = mail(text, *headers, f"Message-ID: <m{self.count}@mail.example.com>", sender=sender, to=to)
        return self.again(raw, to, mail_from)

    def again(self, raw: bytes, to: str = NOTES, mail_from: str | None = None) -> Verdict:
        """These very bytes."""
        return self.room.receive(raw, Envelope("test", to, mail_from))

    def letter(self, recipient: str = ANN) -> dict[str, Any]:
        """The last letter to somebody."""
        rows = self.fleet.run.db.rows(
            "SELECT id::text, payload, key FROM outbox WHERE recipient = %(to)s AND channel = 'email' ORDER BY n DESC",
            {"to": recipient},
        )
        return rows[0]

    def address(self, recipient: str = ANN) -> str:
        """Where that letter is answered."""
        found = reply_address(self.fleet.settings, self.letter(recipient)["id"], recipient)
        assert found is not None
        return found

    def stored(self) -> list[tuple[str, str | None]]:
        """State and reason of every mail."""
        rows = self.fleet.run.db.rows("SELECT state, reason FROM arrivals WHERE source = 'email' ORDER BY id")
        return [(row["state"], row["reason"]) for row in rows]

    def decided(self, task: str) -> tuple[str, str | None, str | None]:
        """State, by whom and how of the newest question."""
        row = self.fleet.run.db.rows(
            "SELECT state, decided_by, decided_how FROM approvals WHERE task_id = %(id)s ORDER BY asked DESC",
            {"id": task},
        )[0]
        return row["state"], row["decided_by"], row["decided_how"]


def signoff(database: Any, **call: Any) -> Any:
    return asked(database, Ship(item="pears", **({"risk": "low", "people": ANN} | call)), **IN)


def test_a_mail_opens_a_task_once_and_further_ones_of_its_thread_are_news_for_it(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="ok")), **IN) as f:
        change(f, "notes", triggers=[on.email(NOTES)])
        post = Post(f)
        raw = mail("Please note it\n\nOn Monday Bob wrote:\n", TRUSTED, "Message-ID: <first@mail.example.com>")
        opened = post.again(raw)
        assert opened.outcome == "accepted" and opened.task_id is not None
        assert post.again(raw) == Verdict("duplicate", task_id=opened.task_id)
        row = f.run.db.rows("SELECT payload, raw, proof, sender FROM arrivals WHERE source = 'email'")[0]
        assert bytes(row["raw"]) == raw and row["proof"] == "email:dmarc" and row["sender"] == ANN
        assert row["payload"]["subject"] == "A question" and row["payload"]["text"].startswith("Please note it")
        more = post.put("And this", TRUSTED, "References: <first@mail.example.com>")
        assert (more.outcome, more.task_id) == ("accepted", opened.task_id)
        assert f.drain(opened.task_id) == "done" and not f.state(opened.task_id).tainted
        again = post.put("Once more", TRUSTED, "References: <first@mail.example.com>")
        assert again.task_id == opened.task_id and f.drain(opened.task_id) == "done"
        assert "Reopened" in f.kinds(opened.task_id)
        unproven = post.put("I am ann", "References: <first@mail.example.com>")
        assert unproven.task_id == opened.task_id and f.drain(opened.task_id) == "done"
        assert f.state(opened.task_id).tainted


def test_who_may_not_write_opens_nothing_and_the_mail_is_kept_with_the_reason(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="ok")), **IN) as f:
        post, box = Post(f), "refunds@in.example.com"
        for text, headers, sender, reason in (
            ("refund", [MALLORY], "mallory@evil.example", "not_allowed"),
            ("refund", [], ANN, "unproven_sender"),
            ("refund", [TRUSTED, "Auto-Submitted: auto-replied"], ANN, "auto_submitted"),
            ("", [TRUSTED], ANN, "empty"),
        ):
            assert post.put(text, *headers, sender=sender, to=box) == Verdict("ignored", reason)
        assert post.put("x", TRUSTED, to="agent+r7k2m9.pnz7cojtqbroehsl@in.example.com").reason == "forged_token"
        assert post.put("x", TRUSTED, to="nobody@elsewhere.example").reason == "unknown_recipient"
        assert f.one("SELECT count(*) FROM agent_tasks") == 0 and len(post.stored()) == 6
        assert f.one("SELECT count(*) FROM outbox") == 0, "nobody is answered"
        assert post.put("refund", TRUSTED, to=box).outcome == "accepted"


def test_b137_a_yes_by_its_own_address_decides_at_low_risk_however_the_ids_were_rewritten(fresh_database: Any) -> None:
    with signoff(fresh_database) as q:
        post = Post(q.fleet)
        given = post.put(reply_to_letter("Yes"), TRUSTED, to=post.address().upper())
        assert given == Verdict("accepted", "decided", q.task)
        assert post.decided(q.task) == ("approved", ANN, "reply")
        assert q.fleet.drain(q.task) == "done" and q.fleet.one("SELECT count(*) FROM notes") == 1
        assert post.stored()[-1] == ("ignored", "decided")


@pytest.mark.parametrize(
    ("words", "headers", "call"),
    [
        (reply_to_letter("Yes"), [], {}),
        (reply_to_letter("Yes"), [TRUSTED], {"risk": "medium"}),
        (reply_to_letter("Yes"), [TRUSTED], {"risk": "high"}),
        (reply_to_letter("Yes, but send two"), [TRUSTED], {}),
        (reply_to_letter("") + "\n\nYes\n", [TRUSTED], {}),
        (reply_to_letter("").replace("> reply NO", "Yes\n> reply NO"), [TRUSTED], {}),
    ],
    ids=["unproven", "medium risk", "high risk", "more than a word", "below the quote", "inside the quote"],
)
def test_b132_any_other_reply_is_a_comment_and_a_proven_sender_gets_the_link(
    fresh_database: Any, words: str, headers: list[str], call: dict[str, Any]
) -> None:
    with signoff(fresh_database, **call) as q:
        post, letters = Post(q.fleet), len(q.box.letters)
        given = post.put(words, *headers, to=post.address())
        assert (given.outcome, given.task_id) == ("accepted", q.task)
        assert post.decided(q.task)[0] == "pending" and post.stored() == [("accepted", None)]
        q.deliver()
        assert len(q.box.letters) == letters + bool(headers), "nobody unproven is answered"
        if headers:
            assert "decided nothing" in q.text() and "https://fleet.example/a/" in q.text()
        assert q.fleet.drain(q.task) == "waiting"
        assert bool(q.fleet.state(q.task).tainted) is not bool(headers)


def test_b138_a_forwarded_mail_answered_by_an_outsider_is_an_unproven_comment(fresh_database: Any) -> None:
    with signoff(fresh_database) as q:
        post = Post(q.fleet)
        given = post.put(reply_to_letter("Yes"), MALLORY, sender="mallory@evil.example", to=post.address())
        assert (given.outcome, given.task_id) == ("accepted", q.task) and post.decided(q.task)[0] == "pending"
        assert q.fleet.drain(q.task) == "waiting" and q.fleet.state(q.task).tainted
        ours = message_id(post.letter()["id"], DOMAIN)
        by_id = post.put(reply_to_letter("Yes"), TRUSTED, f"In-Reply-To: {ours}", to="refunds@in.example.com")
        assert by_id.task_id == q.task and post.decided(q.task)[0] == "pending", "an id proves nothing"


def test_the_letter_itself_says_where_and_above_which_line_it_is_answered(fresh_database: Any) -> None:
    with signoff(fresh_database) as q:
        post, letter = Post(q.fleet), q.box.mails[-1]
        body = letter.get_body(("plain",))
        assert body is not None and letter["Reply-To"] == post.address()
        text = body.get_content()
        assert text.splitlines()[0] == MARKER
        outlook = f"Yes\n\nFrom: Fleet\nSent: Monday\nTo: Ann\nSubject: {letter['Subject']}\n\n{text}"
        assert post.put(outlook, TRUSTED, to=str(letter["Reply-To"])).reason == "decided"


def test_a_no_decides_too_and_whoever_comes_later_is_told_once_and_changes_nothing(fresh_database: Any) -> None:
    with signoff(fresh_database) as q:
        post = Post(q.fleet)
        to = post.address()
        assert post.put(reply_to_letter("NO"), TRUSTED, to=to).reason == "decided"
        assert post.decided(q.task)[0] == "rejected"
        assert post.put(reply_to_letter("no."), TRUSTED, to=to).reason == "decided", "the same again"
        for _ in range(3):
            assert post.put(reply_to_letter("Yes"), TRUSTED, to=to) == Verdict("ignored", "closed", q.task)
        assert post.decided(q.task)[0] == "rejected" and q.fleet.drain(q.task) == "done"
        before = len(q.box.letters)
        send(q.fleet, q.box)
        notices = [each for each in q.box.letters[before:] if "changed nothing" in each.text]
        assert len(notices) == 1 and "rejected by ann@example.com" in notices[0].text
        q.fleet.run.db.rows("UPDATE agent_tasks SET status = 'failed' WHERE id = %(id)s RETURNING id", {"id": q.task})
        assert post.put(reply_to_letter("thanks"), to=to).outcome == "ignored"
        assert q.fleet.one("SELECT count(*) FROM outbox WHERE state = 'pending'") == 0, "no backscatter"


def test_b130_a_bounce_for_good_escalates_and_starts_nothing(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ship, "approval", lambda self, _: ask(self.people, "due", risk="low", escalate_to=BOSS))
    dsn = (
        "--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx\r\n\r\n"
        "Final-Recipient: rfc822; ann@example.com\r\nAction: {}\r\nStatus: {}\r\n\r\n--b--\r\n"
    )
    report = "Content-Type: multipart/report; report-type=delivery-status; boundary=b"
    with signoff(fresh_database) as q:
        post = Post(q.fleet)
        to = bounce_address(q.fleet.settings, post.letter()["id"])
        assert to is not None
        robot = "mailer-daemon@mx.example"
        later = post.put(dsn.format("delayed", "4.4.1"), report, to=to, sender=robot, mail_from="")
        assert later.reason == "bounce_for_now" and q.fleet.step(q.task) == "nothing"
        dead = post.put(dsn.format("failed", "5.1.1"), report, to=to, sender=robot, mail_from="")
        assert dead == Verdict("ignored", "bounce", q.task)
        assert q.fleet.drain(q.task) == "waiting" and post.decided(q.task)[0] == "escalated"
        q.deliver()
        assert q.box.letters[-1].recipient == BOSS
        assert q.fleet.one("SELECT address FROM undeliverable") == ANN
        assert q.fleet.one("SELECT count(*) FROM agent_tasks") == 1
        forged = to.replace("bounce+", "bounce+a")
        assert not post.room.knows(forged)
        assert post.put(reply_to_letter("Yes"), TRUSTED, sender=BOSS, to=post.address(BOSS)).reason == "decided"
        assert q.fleet.drain(q.task) == "done" and q.fleet.one("SELECT count(*) FROM notes") == 1


def test_b145_a_thousand_mails_are_ten_and_at_most_one_notice(fresh_database: Any) -> None:
    with signoff(fresh_database, risk="medium") as q:
        post = Post(q.fleet)
        to = post.address()
        found = [post.put(reply_to_letter("Yes"), TRUSTED, to=to).reason for _ in range(40)]
        assert found == [""] * 10 + ["quarantined"] * 30 and len(post.stored()) == 40, "they are kept"
        assert q.fleet.one("SELECT count(*) FROM outbox WHERE state = 'pending'") == 1


def test_b129_a_responder_that_gives_no_sign_and_changes_its_address_is_silenced(fresh_database: Any) -> None:
    with signoff(fresh_database) as q:
        post = Post(q.fleet)
        ours = message_id(post.letter()["id"], DOMAIN)
        found = [
            post.put("I am away", f"In-Reply-To: {ours}", sender=f"r{n}@example.com", to=post.address()).reason
            for n in range(8)
        ]
        assert found == [""] * 5 + ["quarantined"] * 3
        assert q.fleet.one("SELECT count(*) FROM outbox WHERE state = 'pending'") == 0


def test_a_question_is_answered_by_reply_and_only_by_whom_it_was_sent_to(fresh_database: Any) -> None:
    proven = TRUSTED.replace("example.com", "example.org")
    with curious(fresh_database, WHICH, **IN) as f:
        task, post = ask_by(f), Post(f)
        ann, ben = "ann@example.org", "ben@example.org"
        first = post.address(ann)
        assert post.put(reply_to_letter("Replace"), proven, sender=ben, to=post.address(ann)).reason == ""
        assert post.put(reply_to_letter("Replace"), sender=ann, to=post.address(ann)).reason == ""
        assert post.put(reply_to_letter("neither"), proven, sender=ann, to=post.address(ann)).reason == "unfit"
        assert post.decided(task)[0] == "pending"
        assert post.put(reply_to_letter("Replace"), proven, sender=ben, to=post.address(ben)).reason == "answered"
        assert post.decided(task) == ("answered", ben, "reply") and f.drain(task) == "done"
        assert post.put(reply_to_letter("Refund"), proven, sender=ann, to=first).reason == "closed"
