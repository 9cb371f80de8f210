"""Two at one moment: after a verb has returned nothing begins, and what comes doubled counts once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from tests.agents.notes.tools import KeepNote
from tests.agents.refunds.tools import Pay
from tests.fakes.http_service import FakeService
from tests.hands import beside, blocked, change, counted, once, together, until
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived
from twelvefold import AUTO, Done, Text, on
from workers.operate import Refused
from workers.switches import Thrown

ROUNDS = [
    pytest.param(100, id="100"),
    pytest.param(1000, id="1000", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
]


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The outside."""
    with FakeService() as made:
        yield made


def freeze(f: Fleet, task: str) -> Thrown:
    """Freeze everything."""
    return f.switches.freeze("*", by="ann")


def pause(f: Fleet, task: str) -> None:
    """Pause the task."""
    f.operate.pause(task)


def pause_scope(f: Fleet, task: str) -> Thrown:
    """Pause all of its agent."""
    return f.switches.pause("agent:refunds", by="ann")


def cancel(f: Fleet, task: str) -> str:
    """Cancel the task."""
    return f.operate.cancel(task, by="ann")


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("verb", [freeze, pause, pause_scope, cancel])
def test_after_the_verb_has_returned_nothing_begins(
    fresh_database: Any, service: FakeService, verb: Callable[[Fleet, str], Any], rounds: int
) -> None:
    port, dice, began = int(service.address.rpartition(":")[2]), random.Random(12), 0
    with fleet(fresh_database, once(Pay(port=port, order_id="o", amount=10))) as f:  # type: ignore[arg-type]
        for _ in range(rounds):
            task = f.open("refunds")
            assert f.step(task) == "ready"
            wait, returned = dice.uniform(0, 0.006), [0.0]

            def stop(task: str = task, wait: float = wait, returned: list[float] = returned) -> Any:
                sleep(wait)
                said = verb(f, task)
                returned[0] = monotonic()
                return said

            left, said = together(lambda task=task: f.step(task), stop)  # type: ignore[misc]
            started = f.run.db.rows(
                "SELECT at FROM agent_events WHERE task_id = %(id)s AND type = 'Started'", {"id": task}
            )
            sent = [b for b in service.begun if b.key.startswith(task)]
            assert len(sent) == len(started) <= 1
            assert left in ("ready", "nothing", "cancelled")
            if isinstance(said, Thrown):
                # what freeze does not name had come back by then, or never begins
                named = [row[0] for row in said.begun]
                if sent and sent[0].at > returned[0]:
                    assert named == [task]
                with f.run.db.connection() as connection:
                    connection.execute("DELETE FROM switches")
            elif sent and verb is cancel:
                assert f.drain(task) == "cancelled"
            before = len(service.begun)
            if verb is not freeze and verb is not pause_scope:
                f.drain(task)
                assert len(service.begun) == before, "began after the verb had returned"
            began += len(started)
        assert 0 < began < rounds, f"{began} of {rounds}: the race has to go both ways"


def test_the_same_doorbell_three_times_in_parallel_is_one_step(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        model = counted(f)
        for n in range(20):
            task = f.open()
            left = together(*[lambda task=task: f.step(task)] * 3)
            assert sorted(left) in (["nothing", "nothing", "ready"], ["nothing", "ready", "ready"])
            # a doorbell that comes after the first step has ended is a step of its own
            steps = f.row(task)["current_step"]
            assert steps == left.count("ready")
            assert model.asked == n + 1
            model.asked = n + 1
            assert f.kinds(task)[:3] == ["Arrived", "ModelAsked", "Decided"]


def test_doorbells_during_a_step_find_nothing(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        model = counted(f)
        inner = f.run.model._inner  # type: ignore[attr-defined]
        task = f.open()

        def answer(request: Any) -> Any:
            assert together(lambda: f.step(task), lambda: f.step(task)) == ["nothing", "nothing"]
            return inner.ask(request)

        model._reply = answer
        assert f.step(task) == "ready"
        assert model.asked == 1


def test_fifty_deliveries_of_one_key_open_one_task(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept")), db_pool=12) as f:
        change(f, "notes", triggers=[on.webhook("shop", type="order")])
        arrived = Arrived(
            tenant="t1", source="shop", key="delivery-1", type="order", payload={"text": "hello"}, raw=b"{}",
            headers={}, sender=None, conversation=None, proof="none",
        )  # fmt: skip
        verdicts = together(*[lambda: f.intake.accept(arrived)] * 50)
        assert sorted(v.outcome for v in verdicts) == ["accepted"] + ["duplicate"] * 49
        assert len({v.task_id for v in verdicts}) == 1
        assert f.one("SELECT count(*) FROM agent_tasks") == 1
        assert f.one("SELECT count(*) FROM arrivals") == 1


def test_the_first_decision_wins_and_the_others_learn_who_and_when(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        for _ in range(10):
            task = f.open()
            assert f.drain(task) == "waiting"
            call = f.state(task).call
            assert call is not None

            def decide(approved: bool, by: str, task: str = task, call: int = call.seq) -> str:
                return f.operate.decide(task, call, approved=approved, by=by).state

            said = together(
                lambda: decide(True, "ann"), lambda: decide(False, "bob"), lambda: decide(True, "cid"),
                lambda: decide(False, "dan"),
            )  # fmt: skip
            won = f.one("SELECT state FROM approvals WHERE task_id = %(id)s", id=task)
            for wanted, answer in zip(("approved", "rejected") * 2, said, strict=True):
                if wanted == won:
                    assert answer == won
                else:
                    assert isinstance(answer, Refused)
                    assert answer.code == 409
                    assert won in str(answer)
            told = "SELECT count(*) FROM arrivals WHERE task_id = %(id)s AND kind = 'decision' AND state = 'accepted'"
            assert f.one(told, id=task) == 1
            assert f.drain(task) == "done"


def test_a_begin_under_way_makes_the_freeze_wait_for_it(fresh_database: Any, service: FakeService) -> None:
    port = int(service.address.rpartition(":")[2])
    with fleet(fresh_database, once(Pay(port=port, order_id="o", amount=10))) as f:  # type: ignore[arg-type]
        task = f.open("refunds")
        f.step(task)
        change(f, "refunds", tools=[held_in_begin(f, task, fresh_database)])
        with beside(lambda: f.step(task)) as left:
            until(lambda: blocked(fresh_database.app) == 1, "Begin waits for the row")
            with beside(lambda: f.switches.freeze("*", by="ann")) as frozen:
                until(lambda: blocked(fresh_database.app) == 2, "the freeze waits for Begin")
                HELD.pop().close()
        assert left == ["ready"]
        assert [row[0] for row in frozen[0].begun] == [task] or not f.state(task).call
        assert len(service.begun) == 1, "it had begun before the freeze returned"


HELD: list[psycopg.Connection[Any]] = []


def held_in_begin(f: Fleet, task: str, database: Any) -> Any:
    """Pay, whose rule locks the task row from another connection right before Begin's checks."""

    class Held(Pay):
        """The same. Use in tests."""

        def approval(self, task_: Any) -> Any:
            connection = psycopg.connect(database.app.replace("+psycopg", ""))
            connection.execute("SELECT FROM agent_tasks WHERE id = %s FOR UPDATE", (task,))
            HELD.append(connection)
            return AUTO

    Held.__spec__ = Pay.__spec__
    return Held


def test_b13_a_cancel_while_queued_lets_the_task_never_run(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        model = counted(f)
        task = f.open()
        f.operate.cancel(task, by="ann")
        again = Fleet(fresh_database.app, once(KeepNote(text="kept")))  # all workers restarted
        assert again.drain(task) == "cancelled"
        assert again.drain(task) == "nothing"
        assert model.asked == 0
        assert f.one("SELECT count(*) FROM notes") == 0
        again.close()


@pytest.mark.parametrize("ends", [True, False])
def test_b13_a_cancel_during_the_model_call_discards_the_answer(fresh_database: Any, ends: bool) -> None:
    call = Done(outcome=Text(text="too late")) if ends else KeepNote(text="kept")
    with fleet(fresh_database, lambda task: call) as f:
        model = counted(f)
        inner = f.run.model._inner  # type: ignore[attr-defined]
        task = f.open()

        def cancelled(request: Any) -> Any:
            assert f.operate.cancel(task, by="ann") == "cancelling"
            return inner.ask(request)

        model._reply = cancelled
        assert f.step(task) == ("nothing" if ends else "ready")
        assert f.drain(task) == "cancelled"
        row = f.row(task)
        assert (row["status"], row["inbox_pending"], row["cancel_asked"], row["worker_id"]) == (
            "cancelled", 0, None, None,
        )  # fmt: skip
        assert f.one("SELECT count(*) FROM notes") == 0
        assert f.one("SELECT count(*) FROM outbox WHERE channel = 'email'") == 0
        assert model.asked == 1


def test_a_cancel_during_an_effect_keeps_what_it_brought_back(fresh_database: Any, service: FakeService) -> None:
    port = int(service.address.rpartition(":")[2])

    def steer(task: Any) -> Any:
        return Done(outcome=Text(text="paid")) if task.did(Pay) else None

    with fleet(fresh_database, once(Pay(port=port, order_id="o", amount=10))) as f:  # type: ignore[arg-type]
        change(f, "refunds", steer=steer)
        task = f.open("refunds")
        f.step(task)
        service.hold()
        with beside(lambda: f.step(task)) as left:
            with service.gate.waiting(1, 10):
                f.operate.cancel(task, by="ann")
            service.gate.release()
        assert left == ["cancelled"]
        assert f.kinds(task)[3:] == ["Started", "CancelAsked", "Returned", "Finished"]
        assert f.one("SELECT count(*) FROM refunds") == 1
        assert f.row(task)["inbox_pending"] == 0


def test_a_cancel_of_a_reopening_task_holds(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        task = f.open()
        assert f.drain(task) == "done"
        f.intake.message(task, source="test", key="m", text="again", sender="ann")
        f.operate.cancel(task, by="ann")
        assert f.drain(task) == "cancelled"
