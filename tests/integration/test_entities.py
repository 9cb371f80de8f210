"""One open task for each business entity: what arrives about it meanwhile is news, however many arrive at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.callers import callers
from tests.hands import change, together
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived as Delivery
from triggers.envelope import Verdict
from twelvefold import Agent, DeclarationError, Done, Task, Text, on
from twelvefold.events import Arrived
from twelvefold.tool import Tool


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="done"))


def about(message: Any) -> str | None:
    """Its first word."""
    return str(message.text.split()[0]) if message.text else None


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    """A fleet whose notes are about one order at a time."""
    with fleet(fresh_database, done) as found:
        change(found, "notes", one_open_per_entity=True, about=about, triggers=[on.webhook("shop", type="order")])
        yield found


def arrive(f: Fleet, key: str, text: str, tenant: str = "t1") -> Verdict:
    """A delivery."""
    return f.intake.accept(Delivery(
        tenant=tenant, source="shop", key=key, type="order", payload={"text": text}, raw=b"{}", headers={},
        sender=None, conversation=None, proof="hmac:generic#0",
    ))  # fmt: skip


def test_what_arrives_about_an_open_matter_is_news_for_its_task(f: Fleet) -> None:
    first = arrive(f, "d1", "o-1 is late")
    again = arrive(f, "d2", "o-1 is here")
    assert (again.outcome, again.reason, again.task_id) == ("accepted", "joined", first.task_id)
    assert arrive(f, "d2", "o-1 is here").outcome == arrive(f, "d1", "o-1 is late").outcome == "duplicate"
    assert arrive(f, "d3", "o-2 is late").task_id != first.task_id
    assert arrive(f, "d4", "o-1 is late", tenant="t2").task_id != first.task_id
    assert first.task_id is not None
    f.drain(first.task_id)
    told = [e.payload["text"] for e in f.events(first.task_id) if isinstance(e, Arrived)]  # type: ignore[call-overload, index]
    assert told == ["o-1 is late", "o-1 is here"]


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_an_ended_matter_is_opened_by_a_new_task(f: Fleet, status: str) -> None:
    first = arrive(f, "d1", "o-1 is late").task_id
    with f.run.db.connection() as connection:
        connection.execute("UPDATE agent_tasks SET status = %s WHERE id = %s", (status, first))
    second = arrive(f, "d2", "o-1 again")
    assert (second.outcome, second.reason) == ("accepted", "") and second.task_id != first


def test_of_fifty_at_once_one_opens_the_task_and_the_others_join_it(f: Fleet) -> None:
    verdicts = together(*[lambda n=n: arrive(f, f"d{n}", "o-1 is late") for n in range(50)])
    assert len({v.task_id for v in verdicts}) == 1
    assert sorted(v.reason for v in verdicts) == [""] + ["joined"] * 49
    assert f.one("SELECT count(*) FROM agent_tasks") == 1
    assert f.one("SELECT inbox_pending FROM agent_tasks") == 50


def test_a_done_matter_is_not_opened_again_beside_its_successor(f: Fleet) -> None:
    old = arrive(f, "d1", "o-1 is late").task_id
    assert old is not None and f.drain(old) == "done"
    new = arrive(f, "d2", "o-1 again").task_id
    assert new is not None
    said = f.intake.message(old, source="chat", key="m1", text="and now?", sender="ann")
    assert (said.outcome, said.reason, said.task_id) == ("ignored", "another_open", new)
    with callers(f) as api:
        answer = api.post(f"/thread/{old}/response", {"type": "response", "response": "and now?"})
        assert answer.status_code == 409 and answer.json()["open_thread"] == new
    assert f.drain(new) == "done"
    assert f.intake.message(old, source="chat", key="m2", text="and now?", sender="ann").task_id == old
    assert f.drain(old) == "done" and f.state(old).run == 2


def test_by_the_api_a_second_opener_gets_the_open_thread(f: Fleet) -> None:
    with callers(f) as api:
        body = {"message": "where is it?", "agent": "notes", "business_ref": "o-7"}
        first = api.post("/thread", body, key="a").json()
        second = api.post("/thread", {**body, "message": "still nothing"}, key="b").json()
        assert second["thread_id"] == first["thread_id"] and second["joined"] and "joined" not in first
        third = api.post("/thread", {**body, "message": "still nothing"}, key="b").json()
        assert third["thread_id"] == first["thread_id"]
        assert f.one("SELECT inbox_pending FROM agent_tasks") == 2


def test_one_open_task_needs_to_know_what_it_is_about() -> None:
    with pytest.raises(DeclarationError, match="about="):
        Agent(name="x", tools=[], one_open_per_entity=True)
