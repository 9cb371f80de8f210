"""The relay says of each letter what is known, and no more: written, sent, given up, and answered too late."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest

from console.embedded import Postgres
from delivery.email import TOGETHER_S
from tests.hands import beside
from tests.harness import Fleet, fleet
from tests.proxy import Proxy
from twelvefold import Done, Text
from twelvefold.ports import Letter, NotSent, PerhapsSent, Receipt
from workers.relay import ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S, SEND_S, STALLED_S, deliver
from workers.store import sweeps

INSERT = """
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
VALUES (%(id)s, %(tenant)s, %(id)s, 1, 'email', 'ann@example.com', %(conversation)s, %(n)s, %(id)s::text, %(payload)s)
"""


class Way:
    """A channel that does what a test wants."""

    def __init__(self, act: Callable[[Letter], Any] = lambda letter: None) -> None:
        self.pushed: list[Letter] = []
        self._act = act

    def push(self, letter: Letter) -> Receipt:
        """Note it, do it, and say that it went out."""
        self.pushed.append(letter)
        self._act(letter)
        return Receipt("taken as 17")


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as made:
        yield made


def write(f: Fleet, n: int = 1, tenant: str = "t1", conversation: str = "c", **payload: Any) -> str:
    id_ = str(uuid4())
    names = {"id": UUID(id_), "tenant": tenant, "conversation": conversation, "n": n, "payload": json.dumps(payload)}
    with f.run.db.connection() as connection:
        connection.execute(INSERT, names)
    return id_


def row(f: Fleet, letter: str) -> dict[str, Any]:
    return f.run.db.rows("SELECT * FROM outbox WHERE id = %(id)s", {"id": letter})[0]


def given_up(f: Fleet) -> None:
    """The claims have run out, and a sweep has seen it."""
    with f.run.db.connection() as connection:
        connection.execute(
            "UPDATE outbox SET claimed_until = clock_timestamp() - interval '1 s' WHERE claim IS NOT NULL"
        )
    sweeps.give_up(f.run.db)


def test_a_letter_that_cannot_be_written_has_certainly_not_gone_out(f: Fleet) -> None:
    letter, way = write(f, card={"no": "card"}), Way()
    assert deliver(letter, f.run, {"email": way}) == "pending"
    assert way.pushed == []
    assert "could not be written" in row(f, letter)["error"]
    assert row(f, letter)["state"] == "pending"


def test_an_answer_after_the_letter_was_given_up_is_believed(f: Fleet) -> None:
    letter = write(f)

    def slow(_: Letter) -> None:
        given_up(f)
        assert row(f, letter)["state"] == "unknown"

    assert deliver(letter, f.run, {"email": Way(slow)}) == "sent"
    assert (row(f, letter)["state"], row(f, letter)["receipt"]) == ("sent", "taken as 17")


def test_what_became_of_a_letter_is_written_down_though_the_database_was_away(f: Fleet, postgres: Postgres) -> None:
    letter, gone = write(f), Event()

    def away(_: Letter) -> None:
        postgres.stop()
        gone.set()

    with beside(lambda: deliver(letter, f.run, {"email": Way(away)})) as results:
        assert gone.wait(20)
        postgres.start()
    assert results == ["sent"]
    assert (row(f, letter)["state"], row(f, letter)["receipt"]) == ("sent", "taken as 17")


def test_a_letter_whose_taking_was_answered_to_nobody_is_sent_all_the_same(
    fresh_database: Any, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy:
        behind = replace(fresh_database, app=proxy.url(fresh_database.app))
        with fleet(behind, lambda task: Done(outcome=Text(text="x"))) as f:
            letter, way = write(f), Way()
            rule = proxy.hold_next(letter.encode(), "to_client", after=b"SET state = 'sending'")
            with beside(lambda: deliver(letter, f.run, {"email": way})) as results:
                rule.wait()
                proxy.cut()
            assert results == ["sent"]
            assert len(way.pushed) == 1
            assert row(f, letter)["attempts"] == 2


def test_a_relay_that_stood_still_after_the_taking_sends_nothing(f: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    letter, way = write(f), Way()
    clock = iter([100.0, 106.0])
    monkeypatch.setattr("workers.relay.monotonic", lambda: next(clock))
    assert deliver(letter, f.run, {"email": way}) == "pending"
    assert way.pushed == []
    assert TOGETHER_S + STALLED_S < SEND_S


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (NotSent("no such user", retry=False), "failed"),
        (NotSent("busy", retry=True), "unknown"),
        (PerhapsSent("the line was lost"), "unknown"),
    ],
)
def test_a_letter_that_was_given_up_is_never_sent_again_whatever_is_answered_late(
    f: Fleet, error: Exception, state: str
) -> None:
    letter = write(f)

    def slow(_: Letter) -> None:
        given_up(f)
        raise error

    deliver(letter, f.run, {"email": Way(slow)})
    assert row(f, letter)["state"] == state
    again = Way()
    assert deliver(letter, f.run, {"email": again}) == "nothing"
    assert again.pushed == []


def test_two_tenants_with_the_same_conversation_do_not_wait_for_each_other_nor_see_each_others_letters(
    f: Fleet,
) -> None:
    write(f, 1, tenant="t1", subject="first of t1")
    theirs, way = write(f, 2, tenant="t2", subject="second of t2"), Way()
    assert [id_ for id_, _ in sweeps.letters(f.run.db, 10, 5)].count(theirs) == 1
    assert deliver(theirs, f.run, {"email": way}) == "sent"
    ours = write(f, 3, tenant="t1")
    assert deliver(ours, f.run, {"email": way}) == "nothing", "the first of its own conversation is still open"
    third = write(f, 3, tenant="t2", conversation="d")
    with f.run.db.connection() as connection:
        connection.execute("UPDATE outbox SET state = 'sent' WHERE tenant = 't1' AND n = 1")
        connection.execute("UPDATE outbox SET conversation = 'c' WHERE id = %s", (third,))
    assert deliver(third, f.run, {"email": way}) == "sent"
    assert way.pushed[-1].follows == (theirs,)


def refuses(**how: Any) -> Callable[[Letter], None]:
    def act(letter: Letter) -> None:
        raise NotSent("451 come later", retry=True, **how)

    return act


@pytest.mark.parametrize(
    ("after", "attempts", "seconds"), [(None, 1, 5), (60.0, 1, 60), (60.0, 7, 320), (None, 20, 3600)]
)
def test_the_next_attempt_waits_longer_each_time_and_as_long_as_the_server_says(
    f: Fleet, after: float | None, attempts: int, seconds: int
) -> None:
    letter = write(f)
    with f.run.db.connection() as connection:
        connection.execute("UPDATE outbox SET attempts = %s", (attempts - 1,))
    assert deliver(letter, f.run, {"email": Way(refuses(retry_after=after))}) == "pending"
    waits = f.one("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM outbox")
    assert seconds - 5 < waits <= seconds
    assert deliver(letter, f.run, {"email": Way()}) == "nothing", "it is not due yet"


def test_a_letter_is_given_up_after_about_two_days(f: Fleet) -> None:
    waits = [min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (n - 1)) for n in range(1, ATTEMPTS)]
    assert timedelta(days=1.8) < timedelta(seconds=sum(waits)) < timedelta(days=2.2)
    letter = write(f)
    with f.run.db.connection() as connection:
        connection.execute("UPDATE outbox SET attempts = %s", (ATTEMPTS - 1,))
    assert deliver(letter, f.run, {"email": Way(refuses())}) == "failed"
    assert "451" in row(f, letter)["error"]
