"""Results go back to where a run was begun, and only to whom it is certain that they began it."""

from __future__ import annotations

from typing import Any

from tests.asked import Mailbox, send
from tests.hands import change
from tests.harness import Fleet, fleet
from tests.integration.test_mail_in import IN, NOTES, Post
from tests.integration.test_slack_in import slack_of, tasks
from tests.mails import ANN, TRUSTED
from twelvefold import Done, Text, on, to


def letters(f: Fleet) -> list[tuple[str, str]]:
    """Channel and recipient of everything in the outbox, oldest first."""
    found = f.run.db.rows("SELECT channel, recipient FROM outbox ORDER BY created_at, id")
    return [(row["channel"], row["recipient"]) for row in found]


def done(task: Any) -> Done:
    return Done(outcome=Text(text="It is noted."))


def test_who_wrote_a_mail_gets_the_result_in_its_thread(fresh_database: Any) -> None:
    with fleet(fresh_database, done, **IN) as f:
        change(f, "notes", triggers=[on.email(NOTES)], delivery=[to.reply(), to.email(ANN)])
        post, box = Post(f), Mailbox()
        opened = post.put("Note it", TRUSTED, "References: <a@x.example> <b@x.example>", "Subject: AW: The pears")
        assert opened.task_id is not None and f.drain(opened.task_id) == "done"
        assert letters(f) == [("email", ANN)], "whoever would get it twice gets it once"
        send(f, box)
        (mail,) = box.mails
        assert (mail["To"], mail["Subject"]) == (ANN, "Re: The pears")
        assert mail["In-Reply-To"] == "<m1@mail.example.com>"
        assert mail["References"].split() == ["<a@x.example>", "<b@x.example>", "<m1@mail.example.com>"]
        assert "It is noted." in box.letters[0].text
        again = post.put("And this", TRUSTED, "References: <a@x.example> <b@x.example> <m1@mail.example.com>")
        assert again.task_id == opened.task_id and f.drain(opened.task_id) == "done"
        send(f, box)
        assert box.mails[1]["In-Reply-To"] == "<m2@mail.example.com>", "each run answers what it was begun with"


def test_a_stranger_gets_no_reply_in_the_name_of_somebody_else(fresh_database: Any) -> None:
    with fleet(fresh_database, done, **IN) as f:
        change(f, "notes", triggers=[on.email(NOTES)], delivery=[to.reply()])
        forged = Post(f).put("I am ann")
        assert forged.task_id is not None and f.drain(forged.task_id) == "done"
        assert f.drain(f.open("notes")) == "done"
        assert letters(f) == [], "neither a forged mail nor what no person wrote is answered"


def test_who_wrote_in_slack_is_answered_in_the_thread_and_who_typed_a_command_alone(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f, slack_of(f) as workspace:
        assert workspace.says("<@UBOT> note it", ts="1700000000.000100").status_code == 200
        assert workspace.commands("/ship", "pears", "U1", "1337.42.abc").status_code == 200
        for task in tasks(f):
            assert f.drain(task) == "done"
        assert letters(f) == [("slack", "C1:1700000000.000100"), ("slack", "U1")]
