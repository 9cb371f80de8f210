"""The relay killed at every point of a delivery: no message stands twice, and what nobody can tell says so.

The worker is held by the SMTP server, or by a proxy in front of the database, and then killed. Its rows are not freed
before their time; the tests move that time, as waiting for it would take a minute.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from console.embedded import Postgres, Valkey
from delivery.email import message_id
from tests.fakes.loopback import until_true
from tests.fakes.scripted_smtp import Hold, ScriptedSmtp
from tests.kills.processes import Worker, World, world
from tests.proxy import Proxy, Rule

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]

INSERT = """
INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)
VALUES (%(id)s, 't1', %(task)s, 1, 'email', 'ann@example.com', %(conversation)s, %(n)s, %(id)s::text,
        json_build_object('subject', 'letter', 'text', %(conversation)s || ' ' || %(n)s))
"""
COMES_TO = {
    "before the take": ("sent", 1),
    "after the take": ("unknown", 0),
    "while connecting": ("unknown", 0),
    "after MAIL": ("unknown", 0),
    "after DATA": ("unknown", 0),
    "after the final dot": ("unknown", 1),
    "after the answer, before the settle": ("unknown", 1),
}
"""Where the worker is killed, what its row then says in the end, and how often the message stands at the server."""
HELD_BY_SERVER = {
    "while connecting": "connect", "after MAIL": "mail", "after DATA": "data", "after the final dot": ".",
}  # fmt: skip


def came(held: Hold | Rule) -> bool:
    """Whether somebody is held."""
    return held.came.is_set() if isinstance(held, Hold) else held.fired


@dataclass
class Post:
    """A world with letters to send, a server to send them to, and workers to kill."""

    w: World
    smtp: ScriptedSmtp
    proxy: Proxy
    letters: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Message-ID: conversation and place in it."""

    def write(self, conversation: str, letters: int) -> None:
        """Letters of one conversation, ready to go."""
        with self.w.fleet.run.db.transaction() as connection:
            for n in range(1, letters + 1):
                id_ = uuid4()
                names = {"id": id_, "task": uuid4(), "conversation": conversation, "n": n}
                connection.execute(INSERT, names)
                self.letters[message_id(str(id_), "localhost")] = (conversation, n)

    def worker(self, slots: int) -> Worker:
        """A worker of the lane `delivery`, on the database behind the proxy."""
        smtp = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(self.smtp.port), "SMTP_TLS": "none"}
        return self.w.worker(database=self.proxy.url(self.w.app_url), slots=slots, lanes=("delivery",), env=smtp)

    def hold(self, point: str) -> Hold | Rule:
        """Hold the next delivery that comes to this point."""
        if point in HELD_BY_SERVER:
            return self.smtp.hold(HELD_BY_SERVER[point])
        if point == "before the take":
            return self.proxy.hold_next(b"SET state = 'sending'")
        if point == "after the take":
            return self.proxy.hold_next(b"ann@example.com", "to_client")
        return self.proxy.hold_next(b"UPDATE outbox SET state = $1")

    def kill(self, worker: Worker, held: Hold | Rule) -> None:
        """Kill it, and wait until nothing that it began goes on anywhere: its statements, its sessions."""
        worker.kill()
        self.proxy.cut()
        held.release()
        until_true(self.smtp.idle, 20)
        until_true(lambda: self.connections() == 0, 20)

    def connections(self) -> int:
        """Those of workers that the database still serves."""
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name ^@ 'twelvefold' AND pid <> pg_backend_pid()"
        return int(self.w.one(sql + " AND datname = current_database()"))

    def late(self) -> None:
        """What was being sent should have been settled by now."""
        with self.w.fleet.run.db.connection() as connection:
            connection.execute(
                "UPDATE outbox SET claimed_until = clock_timestamp() - interval '1 s' WHERE state = 'sending'"
            )

    def rows(self) -> list[dict[str, Any]]:
        """The outbox."""
        return self.w.fleet.run.db.rows("SELECT * FROM outbox ORDER BY conversation, n")

    def open(self) -> int:
        """How many letters are not settled."""
        return int(self.w.one("SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')"))

    def taken_or_over(self, letters: int) -> bool:
        """Whether the server took so many, or there is nothing left to take."""
        return len(self.smtp.mails) >= letters or not self.open()

    def came_or_over(self, held: Hold | Rule) -> bool:
        """Whether somebody is held, or nobody will come any more."""
        return came(held) or not self.open()

    def at_server(self) -> list[str]:
        """The Message-IDs of what the server took, in that order."""
        found = [re.search(rb"^Message-ID: (<.*>)\r$", mail, re.MULTILINE) for mail in self.smtp.mails]
        return [match[1].decode() for match in found if match is not None]

    def judge(self) -> dict[str, str]:
        """Every message once at the server or `unknown` and told, and each conversation in order: states by id."""
        times, rows = Counter(self.at_server()), self.rows()
        states = {message_id(str(row["id"]), "localhost"): row["state"] for row in rows}
        assert states.keys() == self.letters.keys()
        assert times.keys() <= states.keys()
        assert set(states.values()) <= {"sent", "unknown"}
        for letter, state in states.items():
            assert times[letter] == 1 or (state == "unknown" and times[letter] == 0), (state, times[letter])
        for row in rows:
            assert row["claim"] is None or row["state"] == "unknown"
            assert (row["error"] == "the worker was lost while sending") is (row["state"] == "unknown")
            assert row["settled_at"] is not None
        for conversation in {conversation for conversation, _ in self.letters.values()}:
            places = [self.letters[id_][1] for id_ in self.at_server() if self.letters[id_][0] == conversation]
            assert places == sorted(places), f"{conversation} came out of order"
        return states


@pytest.fixture
def post(fresh_database: Any, valkey: Valkey, postgres: Postgres) -> Iterator[Post]:
    valkey.start()
    with Proxy(postgres.socket) as proxy, ScriptedSmtp() as smtp, world(fresh_database, valkey) as w:
        yield Post(w, smtp, proxy)


def test_killed_at_any_point_of_a_delivery_its_letter_says_what_is_known_and_the_next_one_follows(post: Post) -> None:
    worker = post.worker(1)
    for point, (state, times) in COMES_TO.items():
        held = post.hold(point)
        post.write(point, 2)
        post.w.until(partial(came, held))
        post.kill(worker, held)
        post.late()
        worker = post.worker(1)
        post.w.until(lambda: post.open() == 0)
        assert worker.said('"letters_unknown"') is (state == "unknown"), "operators are told"
        states = post.judge()
        first, second = (id_ for id_, (conversation, _) in post.letters.items() if conversation == point)
        assert (states[first], post.at_server().count(first)) == (state, times), point
        assert (states[second], post.at_server().count(second)) == ("sent", 1), point


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_letters_with_kills_at_every_point_stand_once_or_are_unknown(
    post: Post, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, points, killed = random.Random(12), list(COMES_TO), Counter[str]()
    for n in range(100):
        post.write(f"conversation {n}", 10)
    worker = post.worker(4)
    while post.open():
        post.w.until(partial(post.taken_or_over, len(post.smtp.mails) + 15))
        point = points[sum(killed.values()) % len(points)] if sum(killed.values()) < 40 else dice.choice(points)
        held = post.hold(point)
        post.w.until(partial(post.came_or_over, held))
        if not came(held):
            held.release()
            break
        killed[point] += 1
        post.kill(worker, held)
        post.late()
        worker = post.worker(4)
    states = Counter(post.judge().values())
    assert sum(states.values()) == 1000
    assert min(killed[point] for point in points) >= 4
    with capsys.disabled():
        print(f"\n1,000 letters, {sum(killed.values())} kills: {dict(states)}, {len(post.smtp.mails)} at the server")
