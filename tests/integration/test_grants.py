"""Grants: an approval for more than one call, for a time, revocable; each call it lets through names it in the log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deciding import ANN, BEN, CLEO, Send, Waits, waits
from twelvefold import Done, Task, Text, Verdict, ask
from twelvefold.tool import Tool
from workers.decisions import Terms
from workers.operate import Refused

HERE, PEARS = Terms(4, this_task=True), Terms(4, same=("item",))


def asks(call: Send, task: Task) -> Verdict:
    """Over 20 somebody else decides."""
    return ask(CLEO) if call.count > 20 else ask(f"{ANN}, {BEN}", "it is due")


def sends(*calls: Send) -> Any:
    """A model that makes these calls one after the other."""

    def script(task: Task) -> Tool[Any]:
        known = task.state.tally("send")
        made = known.count + known.denied
        return calls[made] if made < len(calls) else Done(outcome=Text(text="over"))

    return script


FIVE, SIX, PLUMS, MANY = Send(), Send(count=6), Send(item="plums"), Send(count=30)


def let_through(w: Waits) -> list[tuple[str | None, str]]:
    return [(moved.by, moved.grant) for moved in w.moves() if moved.grant]


def another(w: Waits) -> str:
    """One more task of the same agent; where it came to."""
    w.task = w.fleet.open("signoff")
    return w.fleet.drain(w.task)


def test_an_approval_for_this_task_lets_further_calls_run_and_the_log_names_it(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=sends(FIVE, SIX, PLUMS)) as w:
        w.says(ANN, grant=HERE)
        assert w.fleet.drain(w.task) == "done"
        assert w.sent == ["5 x a box of pears", "6 x a box of pears", "5 x plums"]
        grant = str(w.fleet.one("SELECT id::text FROM grants"))
        assert let_through(w) == [(ANN, grant), (ANN, grant)]
        assert w.fleet.one("SELECT used FROM grants") == 2
        assert w.fleet.one("SELECT count(*) FROM approvals") == 1, "nobody was asked again"
        assert another(w) == "waiting", "it is of this task alone"


def test_an_approval_of_a_pattern_lets_calls_of_other_tasks_run_that_have_the_same_arguments(
    fresh_database: Any,
) -> None:
    with waits(fresh_database, asks, script=sends(FIVE, SIX)) as w:
        w.says(ANN, grant=PEARS)
        assert w.fleet.drain(w.task) == "done"
        assert another(w) == "done" and len(let_through(w)) == 2
    with waits(fresh_database, asks, script=sends(PLUMS)) as w:
        assert w.row["state"] == "pending", "another item"


@pytest.mark.parametrize("spoil", ["revoke", "until", "tenant", "agent"])
def test_a_grant_that_does_not_hold_any_more_or_is_of_others_lets_nothing_through(
    fresh_database: Any, spoil: str
) -> None:
    with waits(fresh_database, asks, script=sends(FIVE)) as w:
        w.says(ANN, grant=PEARS)
        w.fleet.drain(w.task)
        if spoil == "revoke":
            w.fleet.operate.revoke(str(w.fleet.one("SELECT id::text FROM grants")), by=BEN)
        else:
            value = "clock_timestamp()" if spoil == "until" else "'another'"
            with w.fleet.run.db.connection() as connection:
                connection.execute(f"UPDATE grants SET {spoil} = {value}")
        assert another(w) == "waiting" and let_through(w) == []


def test_a_grant_that_is_revoked_before_the_call_begins_lets_nothing_begin(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=sends(FIVE)) as w:
        w.says(ANN, grant=PEARS)
        w.fleet.drain(w.task)
        w.task = w.fleet.open("signoff")
        while not let_through(w):
            assert w.fleet.step(w.task) == "ready"
        w.fleet.operate.revoke(str(w.fleet.one("SELECT id::text FROM grants")), by=BEN)
        assert w.fleet.drain(w.task) == "waiting"
        assert [moved.to for moved in w.moves()] == ["approved", "stale"] and w.row["state"] == "pending"
        assert w.sent == ["5 x a box of pears"] and w.fleet.one("SELECT used FROM grants") == 0
        w.says(BEN)
        assert w.fleet.drain(w.task) == "done"


def test_a_grant_does_not_cover_a_call_that_others_have_to_approve(fresh_database: Any) -> None:
    with waits(fresh_database, asks, script=sends(FIVE, MANY)) as w:
        w.says(ANN, grant=HERE)
        assert w.fleet.drain(w.task) == "waiting"
        assert (w.row["state"], w.row["target"]) == ("pending", CLEO)


@pytest.mark.parametrize("rule", [{"risk": "high"}, {"quorum": 2}, {"four_eyes": True}, {"all_of": (BEN,)}])
def test_what_is_to_be_looked_at_one_by_one_cannot_be_granted(fresh_database: Any, rule: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", **rule)) as w:
        with pytest.raises(Refused) as refused:
            w.says(ANN, grant=HERE)
        assert (refused.value.code, refused.value.kind) == (403, "no_grant")
        if rule == {"quorum": 2}:
            assert w.says(ANN).state == "voted"
            with pytest.raises(Refused, match="looked at by itself"):
                w.says(ANN, grant=HERE)
        assert w.row["state"] == "pending" and w.fleet.one("SELECT count(*) FROM grants") == 0


@pytest.mark.parametrize(
    "terms", [Terms(0, this_task=True), Terms(169, this_task=True), Terms(4), Terms(4, same=("colour",))]
)
def test_terms_that_do_not_fit_are_refused_and_nothing_is_decided(fresh_database: Any, terms: Terms) -> None:
    with waits(fresh_database, asks) as w:
        with pytest.raises(Refused, match="A grant holds for 1 to 168 hours") as refused:
            w.says(ANN, grant=terms)
        assert refused.value.code == 400
        assert w.row["state"] == "pending" and w.fleet.one("SELECT count(*) FROM grants") == 0


def test_the_same_approval_again_gives_no_second_grant_and_who_revoked_first_stays(fresh_database: Any) -> None:
    with waits(fresh_database, asks) as w:
        first = w.says(ANN, grant=HERE)
        assert w.says(ANN, grant=HERE) == first
        grant = str(w.fleet.one("SELECT id::text FROM grants"))
        w.fleet.operate.revoke(grant, by=BEN)
        w.fleet.operate.revoke(grant, by=ANN)
        assert w.fleet.one("SELECT revoked_by FROM grants") == BEN
        with pytest.raises(Refused):
            w.fleet.operate.revoke(w.task, by=ANN)
