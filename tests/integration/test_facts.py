"""Facts are stored with the commit and found by index, however long ago they came and however many there are."""

from __future__ import annotations

import json
from typing import Any

from tests.hands import change, once
from tests.harness import Fleet, fleet
from twelvefold import Ctx, Done, Effect, Read, Task, Text
from twelvefold.events import Rejected
from twelvefold.tool import Tool
from workers.store.facts import HELD, Stored

SENT: list[str] = []


class Send(Effect[str]):
    """Send an order. Use once."""

    order_id: str

    def run(self, ctx: Ctx) -> str:
        """Send it."""
        SENT.append(self.order_id)
        return f"sent as {ctx.task.id[-4:]}-s"


class Count(Read[list[str]]):
    """Count. Use in tests."""

    def run(self, ctx: Ctx) -> list[str]:
        """One id."""
        return ["cnt_7b7"]


def bury(f: Fleet, task: str, events: int) -> None:
    """So many uninteresting events come after what there is, and as many facts of other events."""
    names = {"id": task, "n": events}
    with f.run.db.connection() as connection:
        connection.execute(
            "INSERT INTO agent_events (task_id, seq, type, version, at, data, salt, hash, writer)"
            " SELECT t.id, t.seq + n, 'Woke', 1, clock_timestamp(), '{\"passed\":[\"wait\"]}', 's', 'h', 'test'"
            " FROM agent_tasks t, generate_series(1, %(n)s) n WHERE t.id = %(id)s",
            names,
        )
        connection.execute(
            "INSERT INTO facts SELECT t.id, 'filler-' || (t.seq + n), t.seq + n, true, true"
            " FROM agent_tasks t, generate_series(1, %(n)s) n WHERE t.id = %(id)s",
            names,
        )
        connection.execute(
            "UPDATE agent_tasks SET seq = seq + %(n)s, state = jsonb_set(state, '{seq}', to_jsonb(seq + %(n)s))"
            " || jsonb_build_object('boundary', seq + %(n)s, 'window', '[]'::jsonb) WHERE id = %(id)s",
            names,
        )


def returned(f: Fleet, task: str, decided: dict[str, str], result: str) -> None:
    """A call and what it gave back stand in the log, and not in the index."""
    with f.run.db.connection() as connection:
        for kind, data in (("Decided", decided), ("Returned", {"result": result})):
            connection.execute(
                "WITH t AS (UPDATE agent_tasks SET seq = seq + 1 WHERE id = %(id)s RETURNING id, seq)"
                " INSERT INTO agent_events (task_id, seq, type, version, at, data, salt, hash, writer)"
                " SELECT id, seq, %(kind)s, 1, clock_timestamp(),"
                " (%(data)s::jsonb || jsonb_build_object('call', seq - 1))::json, 's', 'h', 'test' FROM t",
                {"id": task, "kind": kind, "data": json.dumps(data)},
            )


def test_an_id_known_only_from_event_3_of_5_000_is_found_by_index(fresh_database: Any) -> None:
    SENT.clear()
    send = once(Send(order_id="ord_far1"))
    with fleet(fresh_database, lambda task: send(task) if task.did(Count) else Count()) as f:
        change(f, "notes", tools=[Send, Count], delegates=[])
        task = f.open()
        for n, text in enumerate(("and", "send ord_far1")):
            f.intake.message(task, source="test", key=f"more-{n}", text=text, sender="ann", proof="test")
        assert f.step(task) == f.step(task) == "ready" and f.kinds(task)[:3] == ["Arrived"] * 3
        bury(f, task, 5_000)
        with f.run.db.connection() as connection:
            names: dict[str, Any] = {"id": task, "tokens": ["ord_far1"], "told": False}
            plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + HELD, names))
        assert "facts_pkey" in plan and "Seq Scan" not in plan
        assert f.drain(task) == "done" and SENT == ["ord_far1"]


def test_what_the_index_does_not_hold_is_found_as_it_is_written_and_nothing_else_is(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Count())) as f:
        change(f, "notes", tools=[Send, Count], delegates=[])
        many = " ".join(f"id-{n}" for n in range(3_000))
        task = f.open(text=f"for alice (a+b|c) {many}")
        assert f.drain(task) == "done"
        stored, asked = (
            Stored(f.run.db, task),
            ["id-7", "id-2900", "alice", "a+b|c", "alic", "id-29001", "ice", "a.b|c"],
        )
        assert stored.held(asked, told=False) == {"id-7", "id-2900", "alice", "a+b|c"}
        assert stored.held(["id-7", "alice"], told=True) == set(), "what a person wrote is no result"
        assert stored.held(["cnt_7b7"], told=True) == {"cnt_7b7"}
        assert f.one("SELECT count(*) FROM facts WHERE task_id = %(id)s", id=task) < 1_010
        assert "cnt_7b7" in stored.near("cnt_7b8")
        returned(f, task, {"tool": "next_page", "kind": "control", "args": "{}"}, "page-77x")
        returned(f, task, {"tool": "recall", "kind": "read", "args": "{}"}, "recalled-77x")
        returned(f, task, {"tool": "count", "kind": "read", "args": "{}"}, "result-77x")
        words = ["page-77x", "recalled-77x", "result-77x"]
        assert stored.held(words, told=True) == {"result-77x"}
        assert stored.held(words, told=False) == {"recalled-77x", "result-77x"}
        bury(f, task, 300)
        assert "id-2900" in stored.held(["id-2900"], told=False), "the event that has more than is kept is named"
        other = f.open(text="nothing")
        f.step(other)
        assert Stored(f.run.db, other).held(["id-7", "id-2900"], told=False) == set()


def test_a_refused_id_is_told_to_the_model_and_what_came_in_the_same_step_is_known(fresh_database: Any) -> None:
    plans = [Send(order_id="ord_1x3"), Send(order_id="ord_1x2")]

    def script(task: Task) -> Tool[Any]:
        if task.did(Send):
            return Done(outcome=Text(text=f"sent as {task.id[-4:]}-s"))
        return plans[min(task.decisions, 1)]

    SENT.clear()
    with fleet(fresh_database, script) as f:
        change(f, "notes", tools=[Send], delegates=[])
        task = f.open(text="send ord_1x2")
        assert f.drain(task) == "done" and SENT == ["ord_1x2"]
        refused = [event for event in f.events(task) if isinstance(event, Rejected)]
        assert len(refused) == 1 and "(known: ord_1x2)" in refused[0].text
        row = f.run.db.rows("SELECT known, told FROM facts WHERE task_id = %(id)s AND token = 'ord_1x2'", {"id": task})[
            0
        ]
        assert row == {"known": True, "told": True}, "a later source adds to an earlier one"
