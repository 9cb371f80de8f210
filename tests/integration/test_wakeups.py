"""No wake-up is lost: whatever comes while a task goes to sleep makes it ready, and every counter adds up."""

from __future__ import annotations

from collections import deque
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from tests.agents.notes.tools import KeepNote
from tests.agents.refunds.tools import Pay
from tests.fakes.http_service import FakeService
from tests.hands import beside, change, counted, once, owner, together, until
from tests.harness import Fleet, fleet
from twelvefold import Done, Task, Text, Wait
from twelvefold.controls import Delegate
from twelvefold.ports import Receipt
from twelvefold.tool import Tool
from workers.relay import deliver
from workers.step import step
from workers.store import sweeps

DRIFTED = """
SELECT count(*) FROM agent_tasks t WHERE inbox_pending <> (
    SELECT count(*) FROM arrivals r WHERE r.task_id = t.id AND r.state = 'accepted' AND r.absorbed_seq IS NULL)
"""
ASLEEP = "SELECT count(*) FROM agent_tasks WHERE status IN ('waiting', 'done') AND inbox_pending > 0"


def sound(f: Fleet) -> None:
    """Nobody sleeps with something pending, and no counter has drifted."""
    assert f.one(DRIFTED) == 0
    assert f.one(ASLEEP) == 0


def waits(task: Task) -> Tool[Any]:
    """Wait for an event, again and again."""
    return Wait(why="for ever", event=f"key-{task.id}")


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1_000, id="1000"),
     pytest.param(20_000, id="20000", marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["message", "event"])
def test_arrivals_raced_against_commits_are_all_absorbed(fresh_database: Any, rounds: int, kind: str) -> None:
    """Two connections race: one sends, one steps. It ends with everything absorbed by whoever was last."""

    def script(task: Task) -> Tool[Any]:
        if kind == "message":
            return Done(outcome=Text(text="x"))
        return Wait(why="for ever", event=f"key-{task.id}")

    with fleet(fresh_database, script) as f:
        tasks = deque(f.open() for _ in range(4))
        sent = [False]
        said: list[str] = []

        def send() -> None:
            for n in range(rounds):
                task = tasks[n % 4]
                if kind == "message":
                    verdict = f.intake.message(task, source="t", key=f"m{n}", text="x", sender="ann")
                else:
                    verdict = f.intake.event("t1", f"key-{task}", source="t", key=f"e{n}", payload={})
                said.append(verdict.outcome)
            sent[0] = True

        sender = Thread(target=send)
        sender.start()
        while not sent[0]:
            for task in tasks:
                f.step(task)
        sender.join()
        for task in tasks:
            while f.step(task) != "nothing":
                pass
        assert said.count("accepted") == rounds
        sound(f)
        assert f.one("SELECT count(*) FROM arrivals WHERE state = 'accepted' AND absorbed_seq IS NULL") == 0
        taken = f.one("SELECT count(*) FROM arrivals WHERE absorbed_seq IS NOT NULL") - len(tasks)
        left = f.one("SELECT count(*) FROM arrivals WHERE state = 'unclaimed'")
        assert taken + left == rounds
        assert f.one("SELECT count(*) FROM (SELECT DISTINCT task_id, absorbed_seq FROM arrivals WHERE absorbed_seq"
                     " IS NOT NULL) x") == taken + len(tasks), "each is one event"  # fmt: skip


@pytest.mark.parametrize(
    "rounds", [pytest.param(150, id="150"), pytest.param(2_000, id="2000", marks=[pytest.mark.long])]
)
def test_an_event_raced_against_the_commit_that_waits_for_it_always_arrives(fresh_database: Any, rounds: int) -> None:
    def script(task: Task) -> Tool[Any]:
        return Done(outcome=Text(text="x")) if task.did(Wait) else Wait(why="x", event=f"key-{task.id}")

    with fleet(fresh_database, script) as f:
        seen = {"adopted": 0, "counted": 0}
        for n in range(rounds):
            task = f.open()
            left, verdict = together(
                lambda task=task: f.step(task),  # type: ignore[misc]
                lambda task=task, n=n: f.intake.event(  # type: ignore[misc]
                    "t1", f"key-{task}", source="t", key=f"e{n}", payload={}
                ),
            )
            seen["adopted" if verdict.reason == "no_waiter" else "counted"] += 1
            assert left in ("ready", "waiting")
            assert f.row(task)["status"] == "ready", "both are there now, so it has to be awake"
            assert f.drain(task) == "done"
        assert seen["adopted"], seen
        sound(f)


def _deliver_all(f: Fleet) -> int:
    rows = f.run.db.rows("SELECT id::text FROM outbox WHERE channel = 'task' AND state = 'pending' ORDER BY n")
    return sum(deliver(row["id"], f.run, {}) == "sent" for row in rows)


def delegating(task: Task) -> Tool[Any]:
    """The parent hands on, then is done; its child is done at once."""
    if task.state.parent:
        return Done(outcome=Text(text="from the child"))
    return Done(outcome=Text(text="over")) if task.did(Delegate) else Delegate(agent="refunds", request="look")


def test_a_child_is_born_in_its_parents_commit_and_its_result_comes_back_through_the_outbox(
    fresh_database: Any,
) -> None:
    with fleet(fresh_database, delegating) as f:
        task = f.open()
        assert f.drain(task) == "waiting"
        assert f.row(task)["waiting_for"] == "child"
        child = f.one("SELECT id::text FROM agent_tasks WHERE parent_id = %(id)s", id=task)
        charged = f.state(task).used.decisions
        assert charged > 1, "the child's whole budget is charged"
        assert f.drain(child) == "done"
        assert f.one("SELECT count(*) FROM outbox WHERE channel <> 'task'") == 0, "a child answers its parent alone"
        assert _deliver_all(f) == 1
        assert f.row(task)["status"] == "ready"
        assert f.drain(task) == "done"
        assert f.state(task).used.decisions < charged, "what the child left comes back"
        sound(f)


def test_a_parent_that_ends_cancels_its_children_even_a_quarantined_one(fresh_database: Any) -> None:
    with fleet(fresh_database, delegating) as f:
        for stopped in (False, True):
            task = f.open()
            f.drain(task)
            child = f.one("SELECT id::text FROM agent_tasks WHERE parent_id = %(id)s", id=task)
            if stopped:
                with f.run.db.connection() as connection:
                    connection.execute("UPDATE agent_tasks SET attempts = 3 WHERE id = %s", (child,))
                assert f.drain(child) == "quarantined"
            f.operate.cancel(task, by="ann")
            assert f.drain(task) == "cancelled"
            assert _deliver_all(f) == 1
            assert f.drain(child) == "cancelled"
            assert _deliver_all(f) == 1, "the news of it, which the ended parent ignores"
            assert f.row(task)["inbox_pending"] == 0
        sound(f)


def test_a_cancelled_parents_child_finishes_its_running_effect_and_begins_no_other(fresh_database: Any) -> None:
    with FakeService() as service:
        port = int(service.address.rpartition(":")[2])

        def script(task: Task) -> Tool[Any]:
            pays = Pay.model_validate({"port": port, "order_id": f"o{task.count(Pay)}", "amount": "10"})
            return pays if task.state.parent else Delegate(agent="refunds", request="pay twice")

        with fleet(fresh_database, script) as f:
            task = f.open()
            assert f.drain(task) == "waiting"
            child = f.state(task).children[0].id
            assert f.step(child) == "ready"
            service.hold()
            with beside(lambda: f.step(child)) as left:
                with service.gate.waiting(1, 10):
                    f.operate.cancel(task, by="ann")
                    assert f.drain(task) == "cancelled"
                    assert _deliver_all(f) == 1, "the cancel, on its way to the child"
                service.gate.release()
            assert left[0] in ("ready", "cancelled")
            assert f.drain(child) in ("cancelled", "nothing")
            assert f.row(child)["status"] == "cancelled"
            assert f.kinds(child).count("Started") == f.kinds(child).count("Returned") == len(service.effects) == 1
            sound(f)


def test_a_cancel_that_meets_a_finished_child_changes_nothing(fresh_database: Any) -> None:
    with fleet(fresh_database, delegating) as f:
        task = f.open()
        f.drain(task)
        child = f.one("SELECT id::text FROM agent_tasks WHERE parent_id = %(id)s", id=task)
        f.operate.cancel(task, by="ann")
        f.drain(task)
        assert f.drain(child) == "done"
        before = f.kinds(child)
        _deliver_all(f)
        assert f.row(child)["status"] == "done"
        assert f.row(child)["cancel_asked"] is None
        assert f.kinds(child) == before


@pytest.mark.parametrize("rounds", [pytest.param(30, id="30"), pytest.param(500, id="500", marks=[pytest.mark.long])])
def test_parents_and_children_racing_never_deadlock(fresh_database: Any, rounds: int) -> None:
    with fleet(fresh_database, delegating, db_pool=12) as f:
        for _ in range(rounds):
            task = f.open()
            f.drain(task)
            child = f.one("SELECT id::text FROM agent_tasks WHERE parent_id = %(id)s", id=task)
            said = together(
                lambda child=child: f.drain(child),  # type: ignore[misc]
                lambda task=task: f.operate.cancel(task, by="ann"),  # type: ignore[misc]
                lambda task=task: f.step(task),  # type: ignore[misc]
                lambda: _deliver_all(f),
                lambda: sweeps.set_aside(f.run.db),
            )
            assert not [answer for answer in said if isinstance(answer, Exception)], said
            f.drain(task), f.drain(child)
            while _deliver_all(f):
                f.drain(task), f.drain(child)
            sweeps.set_aside(f.run.db)
            assert f.row(task)["status"] in ("cancelled", "done")
            assert f.row(child)["status"] in ("cancelled", "done")
            sound(f)
        assert f.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


@pytest.mark.parametrize("seconds", [pytest.param(3, id="3s"), pytest.param(60, id="60s", marks=[pytest.mark.long])])
def test_b62_sweeps_against_eight_writers_fail_no_step(fresh_database: Any, seconds: int) -> None:
    def script(task: Task) -> Tool[Any]:
        return Wait(why="x", seconds=1)

    with fleet(fresh_database, script, db_pool=12) as f:
        tasks = [f.open() for _ in range(40)]
        end = monotonic() + seconds

        def write(mine: list[str]) -> int:
            steps = 0
            while monotonic() < end:
                for task in mine:
                    steps += step(task, f.run).status != "nothing"
            return steps

        def sweep() -> int:
            rounds = 0
            while monotonic() < end:
                with f.run.db.connection() as connection:
                    connection.execute("UPDATE agent_tasks SET due_at = clock_timestamp(), state = jsonb_set(state,"
                                       " '{call,due}', to_jsonb(clock_timestamp())) WHERE id IN (SELECT id FROM"
                                       " agent_tasks WHERE status = 'waiting' ORDER BY id FOR UPDATE SKIP LOCKED)"
                                       " AND state ? 'call'")  # fmt: skip
                sweeps.make_due(f.run.db)
                sweeps.ring(f.run.db, "steps", 100, 0)
                sweeps.set_aside(f.run.db)
                rounds += 1
            return rounds

        said = together(*[lambda n=n: write(tasks[n::8]) for n in range(8)], sweep, sweep, within=seconds + 60)
        assert not [answer for answer in said if isinstance(answer, Exception)], said
        assert sum(said[:8]) > 100
        assert f.one("SELECT max(attempts) FROM agent_tasks") <= 1
        assert f.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
        sound(f)


def test_b64_an_outbox_row_that_commits_late_is_not_skipped(fresh_database: Any) -> None:
    pushed: list[str] = []

    class Channel:
        """Keeps what is pushed."""

        def push(self, letter: Any) -> Any:
            """Push."""
            pushed.append(letter.id)
            return Receipt("r")

    insert = (
        "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)"
        " VALUES (%(id)s::uuid, 't', gen_random_uuid(), 1, 'fake', 'r', %(id)s::text, 1, %(id)s::text, '{}')"
    )
    early, late = f"{1:032x}", f"{2:032x}"
    with fleet(fresh_database, waits) as f:

        def relay() -> None:
            for row, _ in sweeps.letters(f.run.db, 10, 0):
                deliver(row, f.run, {"fake": Channel()})

        with f.run.db.transaction() as first:
            first.execute(insert, {"id": early})
            with f.run.db.transaction() as second:
                second.execute(insert, {"id": late})
            relay()
            assert [x.replace("-", "") for x in pushed] == [late]
        relay()
        relay()
        assert [x.replace("-", "") for x in pushed] == [late, early]


def test_a_relay_lost_while_it_told_a_task_tells_it_again_and_a_mail_is_unknown(fresh_database: Any) -> None:
    with fleet(fresh_database, delegating) as f:
        task = f.open()
        f.drain(task)
        child = f.one("SELECT id::text FROM agent_tasks WHERE parent_id = %(id)s", id=task)
        f.drain(child)
        with f.run.db.connection() as connection:
            connection.execute(
                "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)"
                " VALUES (gen_random_uuid(), 't', gen_random_uuid(), 1, 'email', 'r', 'c', 1, 'k', '{}')"
            )
            connection.execute(
                "UPDATE outbox SET state = 'sending', claim = gen_random_uuid(),"
                " claimed_until = clock_timestamp() - interval '1 s'"
            )
        sweeps.give_up(f.run.db)
        found = {r["channel"]: r["state"] for r in f.run.db.rows("SELECT channel, state FROM outbox")}
        assert found == {"task": "pending", "email": "unknown"}
        assert _deliver_all(f) == 1
        assert f.drain(task) == "done"


def test_more_writers_than_connections_do_not_starve_each_other(fresh_database: Any) -> None:
    """A Write holds a connection while agent code reads an event; that read must not need a second one."""

    def steer(task: Task) -> Any:
        return Done(outcome=Text(text=task.event.text)) if task.did(KeepNote) else None

    with fleet(fresh_database, once(KeepNote(text="kept")), db_pool=2) as f:
        change(f, "notes", steer=steer)
        counted(f)
        tasks = [f.open() for _ in range(8)]
        for task in tasks:
            f.step(task)
        owner(f, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
                 " $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;"
                 " CREATE TRIGGER slow BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION slow()",
              fresh_database.owner)  # fmt: skip
        assert together(*[lambda task=task: f.step(task) for task in tasks]) == ["done"] * 8
        until(lambda: f.one("SELECT count(*) FROM notes") == 8)
