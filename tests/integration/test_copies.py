"""No copy of a question stays open: whoever was asked is told how it ended, in the conversation in which they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.asked import SECRET, URL, Mailbox, send
from tests.curious import ANN as ANNE
from tests.curious import BEN as BENE
from tests.curious import ask_by, curious
from tests.deciding import ANN, BEN, CLEO, Rule, Waits, waits
from twelvefold import ask
from workers.answers import Reply, answer
from workers.decisions import Wish, decide


@contextmanager
def mailed(database: Any, rule: Rule) -> Iterator[tuple[Waits, Mailbox]]:
    """A task that asks by mail, with its letters sent."""
    with waits(database, rule, public_url=URL, link_secrets=(SECRET,)) as w:
        box = Mailbox()
        send(w.fleet, box)
        box.letters.clear()
        yield w, box


def told(w: Waits, box: Mailbox) -> dict[str, str]:
    """What goes out now, by recipient; the box is empty afterwards."""
    send_all(w.fleet, box)
    found = {letter.recipient: letter.text for letter in box.letters}
    assert len(found) == len(box.letters), "one letter each"
    box.letters.clear()
    return found


def send_all(f: Any, box: Mailbox) -> None:
    """Send what is due; what is not to go out any more stays behind."""
    from workers.relay import deliver

    while rows := f.run.db.rows("SELECT id::text FROM outbox WHERE state = 'pending' ORDER BY n, recipient LIMIT 1"):
        deliver(rows[0]["id"], f.run, {"email": box})


def test_a_reminder_goes_to_who_has_not_voted_and_the_outcome_to_all_but_who_brought_it(fresh_database: Any) -> None:
    with mailed(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}, {CLEO}", "why", quorum=2)) as (w, box):
        w.says(ANN)
        assert told(w, box) == {}, "one vote of two decides nothing"
        w.over("remind_at")
        w.fleet.drain(w.task)
        assert set(told(w, box)) == {BEN, CLEO}
        w.says(BEN)
        found = told(w, box)
        assert set(found) == {ANN, CLEO}
        assert f"This was approved by {ANN}, {BEN} at " in found[CLEO]
        w.says(BEN)
        w.fleet.drain(w.task)
        assert told(w, box) == {} and w.sent == ["5 x a box of pears"], "a repeat tells nobody again"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("reject", "This was rejected by ann@shop.example at "),
        ("edit", "This was approved with edits by ann@shop.example at "),
        ("cancel", "no longer needed"),
        ("expire", "nobody decided in time"),
    ],
)
def test_each_end_of_a_question_is_told_to_every_other_copy_once(fresh_database: Any, way: str, words: str) -> None:
    with mailed(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", "why")) as (w, box):
        match way:
            case "reject":
                w.says(ANN, approved=False)
            case "edit":
                w.says(ANN, edited='{"count":6}')
            case "cancel":
                w.fleet.operate.cancel(w.task, by="root")
            case _:
                w.over("due")
        w.fleet.drain(w.task)
        found = told(w, box)
        assert set(found) == ({BEN} if way in ("reject", "edit") else {ANN, BEN})
        assert words in found[BEN]


def test_what_was_decided_before_its_letter_went_out_is_neither_asked_nor_told(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", "why")) as w:
        decide(w.fleet.run.db, Wish(w.task, w.row["call"], "rejected", ANN, "session"))
        assert told(w, Mailbox()) == {}


def test_of_an_answer_the_others_hear_that_it_is_there(fresh_database: Any) -> None:
    with curious(fresh_database) as f:
        box = Mailbox()
        task = ask_by(f, box)
        box.letters.clear()
        answer(f.run.db, Reply(task, "Refund", ANNE, "session"))
        send_all(f, box)
        assert [(x.recipient, "This was answered by " + ANNE in x.text) for x in box.letters] == [(BENE, True)]
        assert box.letters[0].follows and box.letters[0].subject.startswith("Re: ")
