"""Killed between a person's decision and the effect, and in the middle of it: it happens once, as decided, and whoever
clicks meanwhile is told of the decision.
"""

from __future__ import annotations

from typing import Any

import pytest

from console.embedded import Postgres, Valkey
from tests.kills.processes import World, world
from tests.proxy import Proxy
from twelvefold.events import Started
from workers.operate import Refused

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]
ANN, BEN = "ann@shop.example", "ben@shop.example"


def clicks(w: World, task: str) -> None:
    """The same decision again is answered alike, any other is told who was first, and nobody else may."""
    row = w.fleet.run.db.rows("SELECT call, digest FROM approvals WHERE task_id = %(id)s", {"id": task})[0]
    for by, approved, code in ((ANN, True, 0), (BEN, True, 0), (BEN, False, 409), ("eve@evil.example", True, 403)):
        if code:
            with pytest.raises(Refused) as refused:
                w.fleet.operate.decide(task, row["call"], approved=approved, by=by, digest=row["digest"])
            assert refused.value.code == code
        else:
            said = w.fleet.operate.decide(task, row["call"], approved=approved, by=by, digest=row["digest"])
            assert (said.state, said.by) == ("approved", ANN)


def used(w: World, task: str) -> tuple[str, bool]:
    """The state of the question, and whether its approval was used up."""
    row = w.fleet.run.db.rows("SELECT state, used_at FROM approvals WHERE task_id = %(id)s", {"id": task})[0]
    return row["state"], row["used_at"] is not None


def test_killed_between_decision_and_begin_and_between_begin_and_answer_it_happens_once(
    fresh_database: Any, valkey: Valkey, postgres: Postgres
) -> None:
    valkey.start()
    with world(fresh_database, valkey) as w:
        with Proxy(postgres.socket) as proxy:
            first = w.worker(database=proxy.url(w.app_url))
            task = w.pay("pay_if_allowed")
            w.until_status(task, "waiting/approval")
            rule = proxy.hold_next(b"pg_advisory_xact_lock_shared")
            clicks(w, task)
            rule.wait(30)  # the decision is absorbed, and Begin is on its way
            first.kill()
        assert used(w, task) == ("approved", False) and w.posts() == []
        clicks(w, task)
        w.service.hold_after()
        second = w.worker()
        w.service.waiting(1, 30)
        second.kill()
        assert used(w, task) == ("approved", True) and w.fleet.kinds(task).count("Started") == 1
        clicks(w, task)
        w.service.release()
        w.worker()
        w.until_status(task, "done")
        clicks(w, task)
        assert len(w.service.effects) == 1 and len(w.posts()) == 2 and w.one("SELECT count(*) FROM refunds") == 1
        assert len({event.key for event in w.fleet.events(task) if isinstance(event, Started)}) == 1
        told = w.fleet.run.db.rows("SELECT recipient FROM outbox WHERE payload ->> 'over' IS NOT NULL")
        assert [row["recipient"] for row in told] == [BEN]
