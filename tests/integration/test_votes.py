"""Who may decide, how many have to, and that nobody approves what they asked for: each rule as a row of a table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deciding import ANN, BEN, CLEO, DAN, waits
from tests.hands import together
from twelvefold import DeclarationError, ask
from workers.operate import Refused

THREE = f"{ANN}, {BEN}, {CLEO}"


@pytest.mark.parametrize(
    ("rule", "votes", "comes_to"),
    [
        ({"target": ANN}, [ANN], ["approved"]),
        ({"target": THREE}, [BEN], ["approved"]),
        ({"target": THREE, "quorum": 2}, [BEN, CLEO], ["voted", "approved"]),
        ({"target": THREE, "quorum": 2}, [BEN, BEN.upper(), ANN], ["voted", "voted", "approved"]),
        ({"target": THREE, "quorum": 3}, [BEN, CLEO, ANN], ["voted", "voted", "approved"]),
        ({"all_of": (f"{ANN}, {BEN}", CLEO)}, [ANN, BEN, CLEO], ["voted", "voted", "approved"]),
        ({"all_of": (f"{ANN}, {BEN}", CLEO)}, [CLEO, ANN], ["voted", "approved"]),
        ({"all_of": (ANN, CLEO), "target": DAN, "quorum": 3}, [ANN, CLEO, DAN], ["voted", "voted", "approved"]),
        ({"target": "#people", "quorum": 2}, ["x", "X", "y"], ["voted", "voted", "approved"]),
    ],
)
def test_an_approval_is_complete_when_its_rule_is_met(
    fresh_database: Any, rule: Any, votes: list[str], comes_to: list[str]
) -> None:
    with waits(fresh_database, lambda call, task: ask(**{"reason": "why", **rule})) as w:
        for by, came in zip(votes, comes_to, strict=True):
            assert w.sent == []
            assert w.says(by).state == came
            if came == "voted":
                assert w.fleet.step(w.task) == "nothing", "a vote wakes nobody"
        assert w.fleet.drain(w.task) == "done"
        assert w.sent == ["5 x a box of pears"]
        counted = {by.lower() for by in votes}
        assert w.fleet.one("SELECT count(*) FROM votes") == len(counted)
        assert {name.lower() for name in w.row["decided_by"].split(", ")} == counted


def test_one_rejection_is_enough_and_votes_do_not_outlive_it(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(THREE, quorum=3)) as w:
        w.says(ANN)
        assert w.says(BEN, approved=False).state == "rejected"
        with pytest.raises(Refused, match="Already rejected by ben") as refused:
            w.says(CLEO)
        assert refused.value.code == 409
        with pytest.raises(Refused):
            w.says(CLEO)
        late = w.fleet.run.db.rows("SELECT sender, payload, reason FROM arrivals WHERE state = 'ignored'")
        wanted = {"call": w.row["call"], "to": "approved"}
        assert late == [{"sender": CLEO, "payload": wanted, "reason": "decided_otherwise"}], "kept once, never read"
        w.fleet.drain(w.task)
        assert w.sent == []


def test_who_is_not_asked_is_refused_and_leaves_no_vote(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", quorum=2)) as w:
        for approved in (True, False):
            with pytest.raises(Refused) as refused:
                w.says(DAN, approved=approved)
            assert refused.value.code == 403
        assert w.fleet.one("SELECT count(*) FROM votes") == 0 and w.row["state"] == "pending"


def test_a_vote_is_of_what_was_shown(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", quorum=2)) as w:
        with pytest.raises(Refused) as refused:
            w.says(ANN, digest="0" * 64)
        assert refused.value.code == 409 and w.fleet.one("SELECT count(*) FROM votes") == 0


def test_votes_at_one_moment_are_all_counted_and_the_call_runs_once(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(THREE, quorum=3)) as w:
        found = together(*(lambda by=by: w.says(by) for by in (ANN, BEN, CLEO, ANN, BEN, CLEO)))
        assert {one.state for one in found} <= {"voted", "approved"} and "approved" in {one.state for one in found}
        assert w.fleet.drain(w.task) == "done" and w.sent == ["5 x a box of pears"]


def test_the_log_names_everybody_who_approved(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(THREE, quorum=2)) as w:
        w.says(ANN)
        w.says(CLEO)
        w.fleet.drain(w.task)
        assert [(event.to, event.votes) for event in w.moves()] == [("approved", (ANN, CLEO))]


@pytest.mark.parametrize("proof", ["session", "override"])
def test_nobody_approves_what_they_asked_for_but_may_reject_it(fresh_database: Any, proof: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", four_eyes=True), asked_by=ANN) as w:
        with pytest.raises(Refused) as refused:
            w.says(ANN.upper(), proof=proof)
        assert (refused.value.code, refused.value.kind) == (403, "own_request")
        assert w.row["state"] == "pending"
        assert w.says(BEN, proof=proof).state == "approved"


def test_without_four_eyes_the_rule_alone_says_who_may_approve(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}"), asked_by=ANN) as w:
        assert w.says(ANN).state == "approved"


def test_who_wrote_since_asked_for_it_too_before_the_agent_reads_it(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(f"{ANN}, {BEN}", four_eyes=True), asked_by=ANN) as w:
        w.fleet.intake.message(w.task, source="mail", key="1", text="send more", sender=f"Ben <{BEN}>")
        with pytest.raises(Refused) as refused:
            w.says(BEN)
        assert refused.value.kind == "own_request"
        assert w.says(BEN, approved=False).state == "rejected"


def test_a_shell_counts_as_one_vote_of_any_group(fresh_database: Any) -> None:
    with waits(fresh_database, lambda call, task: ask(all_of=(ANN, BEN))) as w:
        assert w.says("root", proof="override").state == "voted"
        assert w.says("root", proof="override").state == "voted"
        assert w.says(BEN).state == "approved"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"target": ANN, "quorum": 2}, "name at least so many"),
        ({"target": ANN, "quorum": 0}, "name at least so many"),
        ({"target": ANN, "all_of": ("",)}, "all_of= holds groups"),
    ],
)
def test_a_rule_that_nobody_can_fulfil_is_refused(rule: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        ask(**rule)
