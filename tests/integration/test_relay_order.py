"""Four relays on one outbox: conversations in order, one that fails overtaken, every letter once though relays die.

A relay dies here by an exception that nobody catches, at each point where a process could: its row stays as a dead
process leaves it. The times that would have to pass are moved in the database.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from console.cli import cli
from tests.harness import Fleet, fleet
from twelvefold import Done, Text
from twelvefold.ports import Channel, Letter, NotSent, PerhapsSent, Receipt
from workers import relay
from workers.relay import deliver
from workers.store import outbox, sweeps

INSERT = """
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
VALUES (%(id)s, 't1', %(task)s, 1, 'post', %(to)s, %(to)s, %(n)s, %(key)s, %(payload)s)
"""
PASS = """
UPDATE outbox SET due_at = due_at - %(time)s::interval, nudged_at = nudged_at - %(time)s::interval,
       claimed_until = claimed_until - %(time)s::interval,
       first_at = first_at - %(time)s::interval, created_at = created_at - %(time)s::interval
 WHERE state IN ('pending', 'sending')
"""
DUE = PASS.partition("first_at")[0].rstrip().rstrip(",") + " WHERE state IN ('pending', 'sending')"


class Killed(BaseException):
    """The process ends here."""


class Post:
    """A place that keeps what it gets, knows letters by their id, and refuses some people for now."""

    def __init__(self) -> None:
        self.got: dict[str, list[str]] = defaultdict(list)
        self.refuses: set[str] = set()
        self.looked = 0
        self.lock = Lock()

    def push(self, letter: Letter) -> Receipt:
        """Take it."""
        if letter.recipient in self.refuses:
            raise NotSent("451 later", retry=True)
        with self.lock:
            self.got[letter.recipient].append(letter.id)
        return Receipt(f"r-{letter.id}")


class Findable(Post):
    """The same, and it can be asked."""

    def find(self, letter: Letter) -> Receipt | None:
        """Look for it."""
        self.looked += 1
        return Receipt(f"r-{letter.id}") if letter.id in self.got[letter.recipient] else None


class Deadly:
    """A way to a place that kills whoever takes it, before or after the letter has arrived, so many times."""

    def __init__(self, post: Post, dice: random.Random, kills: Counter[str]) -> None:
        self.post, self.dice, self.kills = post, dice, kills

    def push(self, letter: Letter) -> Receipt:
        """Take it, and perhaps die."""
        point = 0.5 if letter.recipient in self.post.refuses else self.dice.random()
        if point < 0.05:
            self.kills["before"] += 1
            raise Killed
        receipt = self.post.push(letter)
        if point > 0.95:
            self.kills["after"] += 1
            raise Killed
        return receipt


class DeadlyFindable(Deadly):
    """The same way to a place that can be asked."""

    def find(self, letter: Letter) -> Receipt | None:
        """Look for it."""
        assert isinstance(self.post, Findable)
        return self.post.find(letter)


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as made:
        yield made


def write(f: Fleet, to: str, n: int, task: str | None = None, **payload: Any) -> str:
    id_ = str(uuid4())
    names = {"id": UUID(id_), "task": task or uuid4(), "to": to, "n": n, "key": id_, "payload": json.dumps(payload)}
    with f.run.db.connection() as connection:
        connection.execute(INSERT, names)
    return id_


def row(f: Fleet, letter: str) -> dict[str, Any]:
    return f.run.db.rows("SELECT * FROM outbox WHERE id = %(id)s", {"id": letter})[0]


def time_passes(f: Fleet, time: str, sql: str = PASS) -> None:
    with f.run.db.connection() as connection:
        connection.execute(sql, {"time": time})


def relays(f: Fleet, way: Channel, count: int = 4) -> None:
    """Four relays deliver until nothing is due. One that dies is followed by another."""

    def one(_: int) -> None:
        while bells := sweeps.letters(f.run.db, 5, 0.5):
            for letter, _shown in bells:
                try:
                    deliver(letter, f.run, {"post": way})
                except Killed:
                    continue

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))


@pytest.mark.parametrize("findable", [True, False])
def test_b65_ten_letters_each_of_fifty_conversations_come_in_order_though_relays_die_and_one_fails(
    f: Fleet, findable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, kills, dice = Findable() if findable else Post(), Counter[str](), random.Random(7)
    way = (DeadlyFindable if findable else Deadly)(post, dice, kills)
    settle = relay._settle

    def dies(*given: Any, **more: Any) -> str:
        if given[1].recipient not in post.refuses and dice.random() < 0.05:
            kills["before the settle"] += 1
            raise Killed
        return settle(*given, **more)

    monkeypatch.setattr(relay, "_settle", dies)
    people = [f"p{number}" for number in range(50)]
    letters = {to: [write(f, to, n) for n in range(1, 11)] for to in people}
    post.refuses.add("p49")
    for _ in range(40):
        relays(f, way)
        time_passes(f, "61 s", DUE)  # what the dead held is given up, what waits is due, and nothing grows old
        sweeps.give_up(f.run.db)
        if f.one("SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending') AND recipient <> 'p49'") == 0:
            break
    assert row(f, letters["p49"][1])["attempts"] == 0, "behind a letter that fails"
    time_passes(f, "16 min")
    relays(f, way)
    assert row(f, letters["p49"][1])["attempts"] >= 1, "it fails still, and holds up nobody any more"
    post.refuses.clear()
    for _ in range(40):
        relays(f, way)
        time_passes(f, "61 s")
        sweeps.give_up(f.run.db)
    assert min(kills[point] for point in ("before", "after", "before the settle")) >= 5
    states = {str(r["id"]): r for r in f.run.db.rows("SELECT * FROM outbox")}
    overtaken = [id_ for id_, r in states.items() if r["overtaken_at"]]
    assert letters["p49"][0] in overtaken and set(overtaken) <= set(letters["p49"])
    for to, ids in letters.items():
        got = post.got[to]
        if to != "p49":
            assert got == [id_ for id_ in ids if id_ in got], f"{to} came out of order"
        for id_ in ids:
            if findable:
                assert (states[id_]["state"], got.count(id_)) == ("sent", 1)
            else:
                assert states[id_]["state"] in ("sent", "unknown") and got.count(id_) <= 1
                assert states[id_]["state"] == "unknown" or got.count(id_) == 1


def test_a_letter_overtakes_after_fifteen_minutes_and_the_one_it_passed_still_goes(f: Fleet) -> None:
    first, second, third, post = write(f, "a", 1), write(f, "a", 2), write(f, "a", 3), Post()
    post.refuses.add("a")
    assert deliver(first, f.run, {"post": post}) == "pending"
    time_passes(f, "14 min")
    assert deliver(second, f.run, {"post": post}) == "nothing"
    time_passes(f, "2 min")
    post.refuses.clear()
    assert deliver(third, f.run, {"post": post}) == "nothing", "the second one has not been tried yet"
    assert deliver(second, f.run, {"post": post}) == "sent"
    assert row(f, first)["overtaken_at"] and row(f, first)["state"] == "pending"
    assert deliver(first, f.run, {"post": post}) == "sent"
    assert deliver(third, f.run, {"post": post}) == "sent"
    assert post.got["a"] == [second, first, third]
    assert row(f, second)["overtaken_at"] is None


def test_an_edit_waits_for_its_original_however_old_that_is_and_is_dropped_with_it(f: Fleet) -> None:
    first, post = write(f, "a", 1), Post()
    edit = write(f, "a", 2, edits=first)
    post.refuses.add("a")
    deliver(first, f.run, {"post": post})
    time_passes(f, "3 hours")
    assert deliver(edit, f.run, {"post": post}) == "nothing"
    post.refuses.clear()
    assert [deliver(letter, f.run, {"post": post}) for letter in (first, edit)] == ["sent", "sent"]
    other = write(f, "b", 1)
    changed = write(f, "b", 2, edits=other)

    class No(Post):
        def push(self, letter: Letter) -> Receipt:
            """Refuse it for good."""
            raise NotSent("550 no such user", retry=False)

    assert deliver(other, f.run, {"post": No()}) == "failed"
    assert deliver(changed, f.run, {"post": post}) == "failed"
    assert "never arrived" in row(f, changed)["error"] and post.got["b"] == []


class Lossy(Findable):
    """Takes the letter, and loses the answer."""

    def push(self, letter: Letter) -> Receipt:
        """Take it."""
        super().push(letter)
        raise PerhapsSent("lost")


def test_b124_a_letter_in_doubt_is_looked_for_before_it_is_sent_again(f: Fleet) -> None:
    letter, post = write(f, "a", 1), Lossy()
    assert deliver(letter, f.run, {"post": post}) == "pending"
    assert (row(f, letter)["doubtful"], post.looked) == (True, 0)
    time_passes(f, "10 s")
    assert deliver(letter, f.run, {"post": post}) == "sent"
    assert (post.got["a"], post.looked) == ([letter], 1)
    assert (row(f, letter)["receipt"], row(f, letter)["doubtful"]) == (f"r-{letter}", False)


class Slow(Post):
    """One letter in a hundred seconds to each destination, and none to anybody when it says so."""

    says: NotSent | None = None

    def pace(self, recipient: str) -> tuple[str, float]:
        """As it says."""
        return recipient, 100.0

    def push(self, letter: Letter) -> Receipt:
        """Take it, or say that all have to wait."""
        if self.says is not None:
            raise self.says
        return super().push(letter)


def test_a_destination_is_paced_for_all_workers_and_retry_after_holds_whoever_it_names(f: Fleet) -> None:
    first, second, third, post = write(f, "a", 1), write(f, "a", 2), write(f, "b", 1), Slow()
    assert deliver(first, f.run, {"post": post}) == "sent"
    assert deliver(second, f.run, {"post": post}) == "pending", "its destination has had one"
    assert row(f, second)["attempts"] == 0, "nobody tried"
    assert f.one("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM outbox WHERE id = %(i)s", i=second) > 90
    post.says = NotSent("429", retry=True, retry_after=300, holds="channel")
    assert deliver(third, f.run, {"post": post}) == "pending"
    post.says = None
    other = write(f, "c", 1)
    assert deliver(other, f.run, {"post": post}) == "pending", "the whole channel has to wait"
    assert f.one("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM outbox WHERE id = %(i)s", i=other) > 290
    with f.run.db.connection() as connection:
        connection.execute("UPDATE paces SET free_at = clock_timestamp() - interval '1 s'")
    time_passes(f, "600 s")
    assert {deliver(letter, f.run, {"post": post}) for letter in (second, third, other)} == {"sent"}
    together = [write(f, "d", n) for n in (1, 2, 3)]
    with f.run.db.connection() as connection:
        connection.execute("UPDATE outbox SET conversation = id::text WHERE recipient = 'd'")
    with ThreadPoolExecutor(3) as pool:
        became = list(pool.map(lambda letter: deliver(letter, f.run, {"post": post}), together))
    assert Counter(became) == {"sent": 1, "pending": 2}


def test_a_dead_letter_is_told_listed_and_goes_again_on_request(
    f: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    letter, unsure, post = write(f, "a", 1), write(f, "b", 1), Post()

    class No(Post):
        def push(self, letter: Letter) -> Receipt:
            """Refuse it for good, or lose the answer."""
            if letter.recipient == "b":
                raise PerhapsSent("lost")
            raise NotSent("550 no such user", retry=False)

    assert deliver(letter, f.run, {"post": No()}) == "failed"
    assert deliver(unsure, f.run, {"post": No()}) == "unknown"
    assert [str(r["id"]) for r in outbox.dead(f.run.db, "t1")] == [unsure, letter]
    monkeypatch.setenv("DATABASE_URL", f.settings.database_url.get_secret_value())
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")

    def says(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["outbox", *words])
        return result.exit_code, result.output

    code, text = says("dead")
    assert code == 0 and letter in text and "550 no such user" in text
    assert letter in says("--state", "failed")[1]
    assert says("requeue", letter) == (0, "pending\n")
    assert says("requeue", letter)[0] == 1, "it is no dead letter any more"
    assert says("requeue", unsure)[0] == 1 and "--twice" in says("requeue", unsure)[1]
    assert says("requeue", unsure, "--twice")[0] == 0
    assert {deliver(each, f.run, {"post": post}) for each in (letter, unsure)} == {"sent"}


def test_whoever_stands_in_gets_a_letter_that_cannot_reach_its_recipient_and_only_once(fresh_database: Any) -> None:
    places = {"post:a": "post:a2", "*": "post:ops"}
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), fallbacks=places) as f:
        task = f.open()
        lost, other, post = write(f, "a", 1, task, text="hello"), write(f, "b", 2, task), Post()

        class No(Post):
            def push(self, letter: Letter) -> Receipt:
                """Refuse it for good."""
                raise NotSent("550 no such user", retry=False)

        for letter in (lost, other):
            assert deliver(letter, f.run, {"post": No()}) == "failed"
        found = f.run.db.rows("SELECT id::text, recipient, n, payload FROM outbox WHERE state = 'pending' ORDER BY n")
        assert [(r["recipient"], r["n"], r["payload"]["for"]) for r in found] == [("a2", 1, "a2"), ("ops", 2, "")]
        assert deliver(found[0]["id"], f.run, {"post": post}) == "sent"
        assert deliver(found[1]["id"], f.run, {"post": No()}) == "failed"
        assert f.one("SELECT count(*) FROM outbox WHERE task_id = %(t)s", t=task) == 4, "a fallback has no fallback"


def test_b144_one_refused_recipient_of_many_leaves_the_others_alone(f: Fleet) -> None:
    class Picky(Post):
        def push(self, letter: Letter) -> Receipt:
            """Refuse the 37th for good."""
            if letter.recipient == "p37":
                raise NotSent("550 no such user", retry=False)
            return super().push(letter)

    post = Picky()
    for number in range(500):
        write(f, f"p{number}", 1)
    relays(f, post)
    relays(f, post)
    assert Counter(r["state"] for r in f.run.db.rows("SELECT state FROM outbox")) == {"sent": 499, "failed": 1}
    assert all(len(got) == 1 for got in post.got.values()) and len(post.got) == 499
