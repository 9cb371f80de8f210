"""Two tenants with the same keys, waits, conversations and doings never meet: each sees what it would see alone.

Both play random doings on one database, in turns and with the same few keys; then each plays its own again alone. What
a tenant is answered, and what it finds at the end, must be the same both times. That every single query says whose
rows it touches is in `tests/architecture/test_tenants.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hands import change
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived
from twelvefold import AUTO, Done, Task, Text, Verdict, Wait, Write, ask, on, to
from twelvefold.controls import Delegate
from twelvefold.ports import Letter, Receipt
from twelvefold.tool import Tool
from workers.operate import Refused
from workers.relay import deliver
from workers.store import sweeps, switches, threads
from workers.switches import KINDS

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

SAME = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), None),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\bt[12]\b"), "TENANT"),
]
"""What differs between two plays of the same: ids, in the order in which they come, times, and what is made of both."""
PLAYED = """
TRUNCATE agent_tasks, agent_events, arrivals, outbox, approvals, votes, grants, switches, facts, memories, renderings,
         slots, spend, spend_days, spend_notices
"""


class Say(Write[str]):
    """Say something. Use when there is something to say."""

    text: str

    def approval(self, task: Task) -> Verdict:
        """What is loud is asked about."""
        return ask("#notes", "it is loud") if self.text.isupper() else AUTO

    def write(self, db: Session) -> str:
        """Nothing to write: the fleet's own rows are looked at here."""
        return self.text


def script(task: Task) -> Tool[Any]:
    """Do what the message says, once."""
    word = task.event.text
    calls: dict[str, Tool[Any]] = {
        "say": Say(text="hello"), "shout": Say(text="HELLO"), "wait": Wait(why="x", event="parcel-1"),
        "wait more": Wait(why="x", event="parcel-2"), "hand on": Delegate(agent="refunds", request="wait"),
    }  # fmt: skip
    call = calls.get(word)
    if call is None or task.did(type(call)) or task.denied(type(call)):
        return Done(outcome=Text(text=f"over: {word}"))
    return call


class Way:
    """A channel that takes everything."""

    def push(self, letter: Letter) -> Receipt:
        """Say what was said before in this conversation."""
        return Receipt(f"after {len(letter.follows)}: {letter.subject}")


@dataclass
class Tenant:
    """One tenant at its doings, and what it was answered."""

    f: Fleet
    name: str
    answers: list[Any] = field(default_factory=list)

    def tasks(self) -> list[str]:
        """Its tasks, oldest first."""
        rows = threads.tasks(self.f.run.db, self.name, most=1000)
        return [row["id"] for row in sorted(rows, key=itemgetter("created_at"))]

    def do(self, doing: Doing) -> None:
        """One doing; a refusal is an answer too."""
        verb, first, second = doing
        try:
            self.answers.append((verb, DOINGS[verb](self, first, second)))
        except Refused as error:
            self.answers.append((verb, error.code, str(error)))

    def arrive(self, key: int, word: int) -> Any:
        """A webhook with a key that may be known."""
        words = ["say", "shout", "wait", "wait more", "hand on", "nothing"]
        arrived = Arrived(
            tenant=self.name, source="shop", key=f"k{key}", type="order", payload={"text": words[word % len(words)]},
            raw=b"{}", headers={}, sender="ann@example.com", conversation="c-1", proof="none",
        )  # fmt: skip
        return self.f.intake.accept(arrived)

    def event(self, key: int, wait: int) -> Any:
        """An outside event for whoever waits."""
        return self.f.intake.event(
            self.name, f"parcel-{wait % 2 + 1}", source="post", key=f"e{key}", payload={"n": key}
        )

    def message(self, task: str, key: int) -> Any:
        """News for a task."""
        return self.f.intake.message(task, source="chat", key=f"m{key}", text="shout", sender="ann")

    def step(self, task: str, steps: int) -> Any:
        """Some steps of a task."""
        return [self.f.step(task) for _ in range(steps + 1)]

    def decide(self, task: str, how: int) -> Any:
        """Approve or reject what is open."""
        asked = threads.asked(self.f.run.db, task, self.name, 0)
        call = asked[-1]["call"] if asked else 1
        return self.f.operate.decide(task, call, approved=bool(how % 2), by="ann").state

    def operate(self, task: str, verb: int) -> Any:
        """Cancel, pause, resume or retry."""
        verbs: list[Callable[[], Any]] = [
            lambda: self.f.operate.cancel(task, by="ann"), lambda: self.f.operate.pause(task),
            lambda: self.f.operate.resume(task), lambda: self.f.operate.retry(task, by="ann"),
        ]  # fmt: skip
        return verbs[verb % len(verbs)]()

    def switch(self, kind: int, scope: int) -> Any:
        """Freeze, pause or stop the intake of a scope, or lift all."""
        scopes = ["*", "agent:notes"]
        if kind % 4 == 3:
            return [self.f.switches.lift(kind, each, tenant=self.name) for kind in KINDS for each in scopes]
        made = self.f.switches.throw(KINDS[kind % 4], scopes[scope % 2], by="ann", tenant=self.name)
        return made.begun, [(s["kind"], s["scope"]) for s in switches.listed(self.f.run.db, self.name)]

    def post(self, *_: int) -> Any:
        """Sweep, and deliver what is due of this tenant."""
        sweeps.make_due(self.f.run.db)
        sweeps.set_aside(self.f.run.db)
        sweeps.give_up(self.f.run.db)
        for lane in ("answers", "steps"):
            sweeps.ring(self.f.run.db, lane, 1000, 0)
        mine = {row["id"] for row in threads.letters(self.f.run.db, self.name, most=1000)}
        due = [id_ for id_, _ in sweeps.letters(self.f.run.db, 1000, 0) if id_ in mine]
        return sorted(deliver(id_, self.f.run, {"email": Way(), "log": Way()}) for id_ in due)

    def rest(self) -> None:
        """Come to the end of everything that can end."""
        for _ in range(3):
            for task in self.tasks():
                while self.f.step(task) != "nothing":
                    assert len(self.f.kinds(task)) < 200, "it does not come to rest"
            self.post()

    def sees(self) -> list[Any]:
        """All that it was answered and can look at."""
        db, tasks, seen = self.f.run.db, self.tasks(), list[Any]([self.answers])
        rows = {row["id"]: row for row in threads.tasks(db, self.name, most=1000)}
        for id_ in tasks:
            seen += [rows[id_], threads.events(db, id_, self.name), threads.asked(db, id_, self.name, 0)]

        def place(row: dict[str, Any]) -> int:  # the id of a child says nothing about when it was born
            return tasks.index(row["task_id"]) if row["task_id"] else -1

        letters = threads.letters(db, self.name, most=1000)
        seen.append(sorted(letters, key=lambda row: (place(row), row["channel"], row["n"], row["created_at"])))
        arrivals = threads.arrivals(db, self.name, most=1000)
        seen.append([{**row, "id": 0} for row in sorted(arrivals, key=lambda row: (place(row), row["id"]))])
        seen.append(threads.approvals(db, self.name))
        return seen


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def of_task(act: Callable[[Tenant, str, int], Any]) -> Callable[[Tenant, int, int], Any]:
    """A doing of one of the tenant's tasks, the newest one for 0."""

    def doing(tenant: Tenant, first: int, second: int) -> Any:
        tasks = tenant.tasks()
        return act(tenant, tasks[-1 - first % len(tasks)], second) if tasks else "no task"

    return doing


Doing = tuple[str, int, int]
DOINGS: dict[str, Callable[[Tenant, int, int], Any]] = {
    "arrive": Tenant.arrive, "event": Tenant.event, "message": of_task(Tenant.message), "step": of_task(Tenant.step),
    "decide": of_task(Tenant.decide), "operate": of_task(Tenant.operate), "switch": Tenant.switch, "post": Tenant.post,
}  # fmt: skip
number = st.integers(0, 5)
doings = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 2), number),
        st.tuples(st.just("step"), st.integers(0, 2), number),
        st.tuples(st.sampled_from(list(DOINGS)), st.integers(0, 2), number),
    ),
    max_size=10,
)


def without_time(value: Any) -> Any:
    """Without the members that say how long something took, which are left out where they are zero."""
    if isinstance(value, dict):
        return {key: without_time(each) for key, each in value.items() if key not in ("ms", "active_ms")}
    return [without_time(each) for each in value] if isinstance(value, list) else value


def normal(seen: list[Any]) -> str:
    """What was seen, without what differs between two plays of the same."""
    text, ids = json.dumps(without_time(_plain(seen)), indent=1), dict[str, str]()
    for pattern, instead in SAME:
        text = pattern.sub(
            lambda found, to=instead: to or ids.setdefault(found[0], f"ID{len(ids)}"),  # type: ignore[misc]
            text,
        )
    return text


@pytest.fixture
def played(fresh_database: Any) -> Iterator[tuple[Fleet, str]]:
    with fleet(fresh_database, script) as f:
        change(
            f, "notes", tools=[Say], triggers=[on.webhook("shop", type="order")],
            delivery=[to.email("notes@example.org"), to.log("notes")],
        )  # fmt: skip
        yield f, fresh_database.owner.replace("+psycopg", "")


def play(played: tuple[Fleet, str], programs: Mapping[str, Sequence[Doing]], turns: Sequence[str] = ()) -> list[str]:
    """Each tenant does all of its program, in turns and then to the end; what each of them sees."""
    f, owner = played
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(PLAYED)
    tenants = {name: Tenant(f, name) for name in programs}
    left = {name: list(program) for name, program in programs.items()}
    for name in [*turns, *(name for name, program in programs.items() for _ in program)]:
        if left[name]:
            tenants[name].do(left[name].pop(0))
    for tenant in tenants.values():
        tenant.rest()
    _strangers(f, list(tenants.values()))
    seen = [tenant.sees() for tenant in tenants.values()]
    ids = [set(SAME[0][0].findall(json.dumps(each, default=str))) for each in seen]
    assert sum(map(len, ids)) == len(set().union(*ids)), "no id is seen by two tenants"
    return [normal(each) for each in seen]


def _strangers(f: Fleet, tenants: Sequence[Tenant]) -> None:
    """No tenant finds another's task, even by its id."""
    for one in tenants:
        for task in one.tasks():
            assert threads.task(f.run.db, task, one.name) is not None
            assert threads.task(f.run.db, task, "nobody") is None
            for other in tenants:
                if other is not one:
                    assert threads.task(f.run.db, task, other.name) is None
                    assert threads.events(f.run.db, task, other.name) == []
                    assert threads.asked(f.run.db, task, other.name, 0) == []
                    assert threads.letters(f.run.db, other.name, task_id=task) == []


WAIT: list[Doing] = [("arrive", 0, 2), ("step", 0, 3)]
WAITED: list[Doing] = [*WAIT, ("event", 0, 0), ("step", 0, 3), ("post", 0, 0)]
ASKED: list[Doing] = [
    ("arrive", 0, 1),
    ("step", 0, 2),
    ("decide", 0, 1),
    ("decide", 0, 0),
    ("step", 0, 3),
    ("post", 0, 0),
]
EARLY: list[Doing] = [("event", 0, 0), ("event", 0, 0), *WAIT, ("arrive", 0, 2)]
SHARED: list[Doing] = [
    ("arrive", 0, 2),
    ("step", 0, 2),
    ("arrive", 1, 2),
    ("step", 0, 2),
    ("event", 0, 0),
    ("post", 0, 0),
]
HANDED: list[Doing] = [
    ("arrive", 0, 4),
    ("step", 0, 3),
    ("step", 1, 3),
    ("event", 0, 0),
    ("post", 0, 0),
    ("operate", 1, 0),
]
TALKED: list[Doing] = [("arrive", 0, 0), ("step", 0, 5), ("message", 0, 0), ("step", 0, 5), ("post", 0, 0)]
FROZEN: list[Doing] = [("switch", 0, 0)]
PAUSED: list[Doing] = [("switch", 1, 1)]
IN_TURN = ["t1", "t2"] * 6


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(doings, doings, st.lists(st.sampled_from(["t1", "t2"]), max_size=20))
@example(WAITED, WAITED, ["t1"] * 2 + ["t2"] * 3)
@example(EARLY[:1], WAIT, IN_TURN)
@example(EARLY, EARLY, IN_TURN)
@example(ASKED, ASKED, IN_TURN)
@example(SHARED, SHARED, IN_TURN)
@example(HANDED, HANDED, IN_TURN)
@example(TALKED, TALKED, IN_TURN)
@example(FROZEN, TALKED, IN_TURN)
@example(PAUSED, TALKED, IN_TURN)
def test_a_tenant_among_others_sees_what_it_would_see_alone(
    played: tuple[Fleet, str], first: list[Doing], second: list[Doing], turns: list[str]
) -> None:
    together = play(played, {"t1": first, "t2": second}, turns)
    assert together == [*play(played, {"t1": first}), *play(played, {"t2": second})]
