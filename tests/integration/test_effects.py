"""An Effect begins durably, ends only by its word, and what it brought back is never lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from console.embedded import Postgres
from tests.agents.refunds import tools
from tests.agents.refunds.tools import Pay, PayAgain, PayAndLook, Refund
from tests.fakes.http_service import FakeService
from tests.hands import beside, change, counted, due, once
from tests.harness import Fleet, fleet
from tests.proxy import Proxy
from twelvefold import Done, Text
from twelvefold.events import Doubted, Failed, Quarantined, Settled, Started
from twelvefold.tool import Tool
from workers.operate import Refused


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The outside."""
    with FakeService() as made:
        yield made


def pay(service: FakeService, kind: type[Tool[Any]] = Pay, amount: str = "10") -> Any:
    """A payment through the service."""
    port = int(service.address.rpartition(":")[2])
    return kind.model_validate({"port": port, "order_id": "o1", "amount": amount})


def opened(f: Fleet) -> str:
    """A task that is about to pay."""
    task = f.open("refunds")
    assert f.step(task) == "ready"
    return task


def call_of(f: Fleet, task: str) -> int:
    """The seq of the open call."""
    call = f.state(task).call
    assert call is not None
    return call.seq


def test_begin_is_durable_before_anything_is_sent(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        task = opened(f)
        service.hold()
        with beside(lambda: f.step(task)) as left:
            with service.gate.waiting(1, 10):
                started = [e for e in f.events(task) if isinstance(e, Started)]
                assert [(e.key, e.attempt) for e in started] == [(f"{task}:{started[0].call}", 1)]
                assert f.state(task).call.phase == "begun"  # type: ignore[union-attr]
                assert f.row(task)["worker_id"] == f.run.worker
            service.gate.release()
        assert left == ["ready"]
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM refunds") == 1


def test_a_dropped_answer_is_a_doubt_that_a_person_settles(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        model = counted(f)
        task = opened(f)
        service.drop_answer()
        assert f.drain(task) == "waiting"
        assert f.row(task)["waiting_for"] == "settle"
        call = call_of(f, task)
        with pytest.raises(Refused, match="not what pay gives back"):
            f.operate.settle(task, call, how="happened", by="ann", result={"key": "k"})
        with pytest.raises(Refused, match="not in doubt"):
            f.operate.settle(task, call + 1, how="not", by="ann")
        result = {"key": f"{task}:{call}", "amount": "10"}
        assert f.operate.settle(task, call, how="happened", by="ann", result=result) == "happened"
        assert f.operate.settle(task, call, how="happened", by="bob", result=result) == "happened"
        with pytest.raises(Refused, match="Already settled as happened by ann"):
            f.operate.settle(task, call, how="not", by="bob")
        assert f.drain(task) == "done"
        assert f.one("SELECT key FROM refunds") == f"{task}:{call}"
        assert (len(service.requests), model.asked) == (1, 2)


@pytest.mark.parametrize(("how", "ends"), [("not", "done"), ("abandoned", "failed")])
def test_what_did_not_happen_is_a_failure_and_what_nobody_knows_ends_the_run(
    fresh_database: Any, service: FakeService, how: Any, ends: str
) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        task = opened(f)
        service.fail(500)
        assert f.drain(task) == "waiting"
        f.operate.settle(task, call_of(f, task), how=how, by="ann")
        assert f.drain(task) == ends
        assert f.row(task)["reason"] == ("in_doubt" if how == "abandoned" else None)
        assert f.one("SELECT count(*) FROM refunds") == 0
        assert len(service.begun) == 1


@pytest.mark.parametrize("trouble", ["drop", "5xx"])
def test_same_key_is_sent_at_most_three_times_with_one_key(
    fresh_database: Any, service: FakeService, trouble: str
) -> None:
    with fleet(fresh_database, once(pay(service, PayAgain))) as f:
        task = opened(f)
        service.drop_answer(9) if trouble == "drop" else service.fail(503, 9)
        assert f.drain(task) == "waiting"
        assert f.row(task)["waiting_for"] == "settle"
        assert len(service.begun) == 3
        assert len({b.key for b in service.begun}) == 1
        assert [e.attempt for e in f.events(task) if isinstance(e, Started)] == [1, 2, 3]
        assert len(service.effects) == (1 if trouble == "drop" else 0)


def test_same_key_goes_on_when_the_second_answer_comes(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service, PayAgain))) as f:
        task = opened(f)
        service.drop_answer()
        assert f.drain(task) == "done"
        assert (len(service.requests), len(service.effects)) == (2, 1)
        assert f.one("SELECT count(*) FROM refunds") == 1


def test_find_is_believed_only_after_its_time(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service, PayAndLook))) as f:
        task = opened(f)
        service.drop_answer()
        assert f.drain(task) == "waiting"
        doubt = next(e for e in f.events(task) if isinstance(e, Doubted))
        assert doubt.then == "find"
        assert doubt.settle_at is not None
        f.intake.message(task, source="test", key="m", text="well?", sender="ann")
        assert f.drain(task) == "waiting", "a message does not make it look earlier"
        assert [b.method for b in service.begun] == ["POST"]
        due(f, task)
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM refunds") == 1
        assert len(service.effects) == 1


def test_find_that_sees_nothing_is_a_failure_and_find_that_fails_is_asked_again(
    fresh_database: Any, service: FakeService
) -> None:
    with fleet(fresh_database, once(pay(service, PayAndLook))) as f:
        task = opened(f)
        service.fail(500)
        assert f.drain(task) == "waiting"
        good = tools.SERVICE
        try:
            tools.SERVICE = "http://127.0.0.1:9/{port}"
            due(f, task)
            assert f.drain(task) == "waiting"
            assert [e.how for e in f.events(task) if isinstance(e, Settled)] == ["unknown"]
        finally:
            tools.SERVICE = good
        due(f, task)
        assert f.drain(task) == "done"
        assert [e.how for e in f.events(task) if isinstance(e, Settled)] == ["unknown", "not"]
        assert f.one("SELECT count(*) FROM refunds") == 0


def test_a_tool_error_is_the_authors_word_that_nothing_happened(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        task = opened(f)
        service.fail(409)
        assert f.drain(task) == "done"
        failure = next(e for e in f.events(task) if isinstance(e, Failed))
        assert (failure.message, failure.affected) == ("The order is not delivered yet.", ("order_id",))


class Slow(Pay, timeout=0.2):
    """Pay, and swallow the time-out. Use in tests."""

    def run(self, ctx: Any) -> Refund:
        """As if all was well."""
        try:
            return super().run(ctx)
        except Exception:
            return Refund(key=ctx.key, amount=self.amount)


class Odd(Pay):
    """Pay, and give back something else. Use in tests."""

    def run(self, ctx: Any) -> Refund:
        """Not what was promised."""
        super().run(ctx)
        return {"paid": True}  # type: ignore[return-value]


def test_b08_a_tool_that_swallows_its_time_out_is_no_success(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service, Slow))) as f:
        change(f, "refunds", tools=[Slow])
        task = opened(f)
        service.hold()
        assert f.drain(task) == "waiting"
        doubt = next(e for e in f.events(task) if isinstance(e, Doubted))
        assert doubt.reason == "the answer took longer than 0.2 s"
        assert f.one("SELECT count(*) FROM refunds") == 0


def test_a_reply_that_does_not_validate_is_a_doubt(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service, Odd))) as f:
        change(f, "refunds", tools=[Odd])
        task = opened(f)
        assert f.drain(task) == "waiting"
        doubt = next(e for e in f.events(task) if isinstance(e, Doubted))
        assert doubt.reason == "the answer was not what the tool promises"


BROKEN: list[bool] = []


class Clumsy(Pay):
    """Pay, and stumble when it is written down. Use in tests."""

    def record(self, result: Refund, db: Session) -> None:
        """Write, then fail as long as it is broken."""
        super().record(result, db)
        db.flush()
        if BROKEN:
            raise ValueError("a bug")


def test_when_record_raises_what_came_back_is_held_and_recorded_after_retry(
    fresh_database: Any, service: FakeService
) -> None:
    BROKEN[:] = [True]
    with fleet(fresh_database, once(pay(service, Clumsy))) as f:
        change(f, "refunds", tools=[Clumsy])
        model = counted(f)
        task = opened(f)
        assert f.drain(task) == "quarantined"
        assert f.one("SELECT count(*) FROM refunds") == 0
        held = [e.held for e in f.events(task) if isinstance(e, Quarantined)]
        assert held[0][0][0] == "Returned"  # type: ignore[index]
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "quarantined", "still broken"
        BROKEN.clear()
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM refunds") == 1
        assert (len(service.begun), model.asked) == (1, 2)


def test_when_agent_code_raises_after_an_effect_its_result_is_held(fresh_database: Any, service: FakeService) -> None:
    broken = [True]

    def steer(task: Any) -> Any:
        if task.did(Pay) and broken:
            raise KeyError("a bug")
        return Done(outcome=Text(text="paid")) if task.did(Pay) else None

    with fleet(fresh_database, once(pay(service))) as f:
        change(f, "refunds", steer=steer)
        task = opened(f)
        assert f.drain(task) == "quarantined"
        assert f.one("SELECT count(*) FROM refunds") == 0, "undone with the step, not lost"
        broken.clear()
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM refunds") == 1
        assert len(service.begun) == 1


def test_agent_code_that_raises_after_the_model_answered_never_asks_it_again(fresh_database: Any) -> None:
    broken = [True]

    def success(task: Any) -> str | None:
        if broken:
            raise KeyError("a bug")
        return None

    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        change(f, "notes", success=[success])
        model = counted(f)
        task = f.open()
        assert f.drain(task) == "quarantined"
        broken.clear()
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"
        assert model.asked == 1


def test_without_a_fresh_pulse_nothing_begins(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        task = opened(f)
        f.run.pulse.alive = False  # type: ignore[attr-defined]
        assert f.step(task) == "nothing"
        row = f.row(task)
        assert (row["status"], row["worker_id"], row["attempts"], row["nudged_at"]) == ("ready", None, 0, None)
        assert "Started" not in f.kinds(task)
        assert service.begun == []
        f.run.pulse.alive = True  # type: ignore[attr-defined]
        assert f.drain(task) == "done"


def test_a_pulse_that_stops_between_begin_and_sending_leaves_a_doubt(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service))) as f:
        task = opened(f)
        answers = [True, False]
        f.run.pulse.fresh = lambda: answers.pop(0)  # type: ignore[method-assign]
        assert f.step(task) == "waiting"
        assert f.kinds(task)[3:] == ["Started", "Doubted"]
        assert service.begun == []


class Killed(BaseException):
    """As SIGKILL: nothing after it runs."""


class Deadly(Pay):
    """Die. Use in tests."""

    def run(self, ctx: Any) -> Refund:
        """Nobody catches this."""
        raise Killed


def test_an_effect_whose_worker_died_is_in_doubt_and_not_sent_again(fresh_database: Any, service: FakeService) -> None:
    with fleet(fresh_database, once(pay(service, Deadly))) as f:
        change(f, "refunds", tools=[Deadly])
        task = opened(f)
        with pytest.raises(Killed):
            f.step(task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE agent_tasks SET worker_id = NULL WHERE id = %s", (task,))
        assert f.step(task) == "waiting"
        assert f.kinds(task)[3:] == ["Started", "Doubted"]
        assert service.begun == []


def test_a_begin_whose_answer_is_lost_is_known_by_its_writer_and_sent_once(
    fresh_database: Any, service: FakeService, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(pay(service))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(pay(service)))
        task = opened(far)
        rule = proxy.drop_answer_after(b"COMMIT")
        assert far.step(task) == "ready"
        assert rule.fired
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Started", "Returned"]
        assert len(service.begun) == 1
        assert f.one("SELECT count(*) FROM refunds") == 1
        far.close()


def test_a_begin_that_went_through_unheard_is_not_sent_by_who_lost_the_claim(
    fresh_database: Any, service: FakeService, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(pay(service))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(pay(service)))
        task = opened(far)
        rule = proxy.drop_answer_after(b"COMMIT")
        original = far.run.db.rows

        def overtaken(sql: Any, params: Any = None) -> Any:
            with f.run.db.connection() as connection:  # while the worker waits for the database
                connection.execute("UPDATE agent_tasks SET worker_id = NULL, fence = fence + 1 WHERE id = %s", (task,))
            return original(sql, params)

        far.run.db.rows = overtaken  # type: ignore[method-assign]
        far.step(task)
        assert rule.fired
        assert service.begun == []
        assert f.step(task) == "waiting", "in doubt, for whoever holds it now"
        far.close()


def test_an_ambiguous_commit_after_an_effect_records_it_once(
    fresh_database: Any, service: FakeService, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(pay(service))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(pay(service)))
        task = opened(far)
        service.hold()
        with beside(lambda: far.step(task)) as left:
            with service.gate.waiting(1, 10):
                rule = proxy.drop_answer_after(b"COMMIT")
            service.gate.release()
        assert (left, rule.fired) == (["ready"], True)
        assert f.kinds(task)[3:] == ["Started", "Returned"]
        assert f.one("SELECT count(*) FROM refunds") == 1
        assert len(service.begun) == 1
        far.close()
