"""Approve with edits: read by the tool, judged by its rule, both versions kept, and seen by others where they must."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deciding import ANN, BEN, CLEO, Send, waits
from tests.hands import together
from twelvefold import AUTO, Task, Verdict, ask, deny
from twelvefold.canonical import call_digest
from twelvefold.events import ApprovalAsked, PolicyDenied
from workers.operate import Refused

TEN = '{"count":10}'


def anyone(call: Send, task: Task) -> Verdict:
    return ask(f"{ANN}, {BEN}", "it is due")


def eyes(call: Send, task: Task) -> Verdict:
    return ask(f"{ANN}, {BEN}", "it is due", four_eyes=True)


def by_size(call: Send, task: Task) -> Verdict:
    """Over 50 is forbidden, over 20 somebody else decides."""
    if call.count > 50:
        return deny("over 50 is forbidden")
    return ask(CLEO if call.count > 20 else f"{ANN}, {BEN}") if call.count != 1 else AUTO


def test_edited_arguments_run_in_the_place_of_those_shown_and_both_are_kept(fresh_database: Any) -> None:
    with waits(fresh_database, anyone) as w:
        shown = w.row["digest"]
        assert w.says(ANN, digest=shown, edited=TEN, comment="ten of them").state == "approved_with_edits"
        assert w.fleet.drain(w.task) == "done"
        assert w.sent == ["10 x a box of pears"]
        moved = w.moves()[0]
        assert (moved.to, moved.by, moved.comment) == ("approved_with_edits", ANN, "ten of them")
        assert moved.changed == {"count": [5, 10]} and moved.args == '{"count":10,"item":"a box of pears"}'
        row = w.row
        assert row["state"] == "approved_with_edits" and row["used_at"] is not None
        assert row["digest"] == moved.digest != shown


def test_the_digest_of_an_edited_approval_is_of_what_runs(fresh_database: Any) -> None:
    with waits(fresh_database, anyone) as w:
        w.says(ANN, edited=TEN)
        verdict = w.fleet.one("SELECT verdict::text FROM approvals")
        args = '{"count":10,"item":"a box of pears"}'
        assert w.row["digest"] == call_digest(w.task, w.row["call"], "send", args, verdict)
        with w.fleet.run.db.connection() as connection:
            connection.execute("UPDATE approvals SET digest = 'another'")
        w.fleet.drain(w.task)
        assert w.sent == [] and w.row["state"] == "pending", "what was approved is not what would run: asked anew"


def test_the_same_edit_again_gets_the_same_answer_and_any_other_is_told_who_was_first(fresh_database: Any) -> None:
    with waits(fresh_database, anyone) as w:
        shown = w.row["digest"]
        first = w.says(ANN, digest=shown, edited=TEN)
        assert w.says(ANN, digest=shown, edited=TEN) == first == w.says(BEN, edited=TEN)
        w.fleet.drain(w.task)
        assert w.says(ANN, digest=shown, edited=TEN) == first
        for wish in ({"edited": '{"count":11}'}, {}, {"approved": False}):
            with pytest.raises(Refused, match="Already approved with edits by ann") as refused:
                w.says(BEN, **wish)
            assert refused.value.code == 409
        assert w.sent == ["10 x a box of pears"]


def test_edits_approvals_and_rejections_at_one_moment_come_to_one_decision(fresh_database: Any) -> None:
    with waits(fresh_database, anyone) as w:
        found = together(
            lambda: w.says(ANN, edited=TEN), lambda: w.says(BEN, edited='{"count":11}'), lambda: w.says(ANN),
            lambda: w.says(BEN, approved=False),
        )  # fmt: skip
        won = [one for one in found if not isinstance(one, Refused)]
        assert len(won) == 1 and all(one.code == 409 for one in found if isinstance(one, Refused))
        w.fleet.drain(w.task)
        ran = {"approved": ["5 x a box of pears"], "rejected": []}
        assert w.sent == ran.get(won[0].state, w.sent) and len(w.sent) <= 1


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        ('{"count":0}', "greater than or equal to 1"),
        ('{"count":"many"}', "valid integer"),
        ('{"amount":5}', "amount: Extra inputs are not permitted"),
        ("[5]", "one JSON object"),
        ("{", "not JSON"),
        ('{"count":1.5}', "not JSON as it is stored"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_decided(
    fresh_database: Any, edited: str, words: str
) -> None:
    with waits(fresh_database, anyone) as w:
        with pytest.raises(Refused, match=words) as refused:
            w.says(ANN, edited=edited)
        assert (refused.value.code, refused.value.kind) == (400, "unfit")
        assert w.row["state"] == "pending" and w.fleet.one("SELECT count(*) FROM votes") == 0
        assert w.fleet.step(w.task) == "nothing"


def test_an_edit_that_changes_nothing_is_an_approval(fresh_database: Any) -> None:
    with waits(fresh_database, anyone) as w:
        assert w.says(ANN, edited='{"count":5}').state == "approved"


def test_the_rule_judges_edited_arguments_and_what_it_denies_does_not_run(fresh_database: Any) -> None:
    with waits(fresh_database, by_size) as w:
        w.says(ANN, edited='{"count":60}')
        assert w.fleet.drain(w.task) == "done"
        assert w.sent == [] and w.row["state"] == "superseded"
        denied = [event.why for event in w.fleet.events(w.task) if isinstance(event, PolicyDenied)]
        assert denied == ["over 50 is forbidden"]


def test_edited_arguments_that_others_have_to_approve_are_asked_about_anew(fresh_database: Any) -> None:
    with waits(fresh_database, by_size) as w:
        w.says(ANN, edited='{"count":30}')
        assert w.fleet.drain(w.task) == "waiting"
        assert w.sent == [] and (w.row["state"], w.row["target"]) == ("pending", CLEO)
        with pytest.raises(Refused):
            w.says(ANN)
        w.says(CLEO)
        assert w.fleet.drain(w.task) == "done" and w.sent == ["30 x a box of pears"]


def test_edited_arguments_that_nobody_has_to_approve_run(fresh_database: Any) -> None:
    with waits(fresh_database, by_size) as w:
        w.says(ANN, edited='{"count":1}')
        assert w.fleet.drain(w.task) == "done" and w.sent == ["1 x a box of pears"]


@pytest.mark.parametrize("rule", [{"four_eyes": True}, {"quorum": 2}])
def test_where_more_than_one_decides_an_edit_is_asked_about_anew_and_votes_for_the_old_call_are_void(
    fresh_database: Any, rule: Any
) -> None:
    people = f"{ANN}, {BEN}, {CLEO}"
    with waits(fresh_database, lambda call, task: ask(people, **rule)) as w:
        old = w.row
        if "quorum" in rule:
            assert w.says(ANN).state == "voted"
            same = w.says(ANN, digest=old["digest"], edited='{"count":5}')
            assert (same.state, same.votes) == ("voted", 1), "an edit that changes nothing is the vote that there is"
        assert w.says(ANN, digest=old["digest"], edited=TEN).state == "edited"
        assert w.says(ANN, digest=old["digest"], edited=TEN).state == "edited", "the same again, before it is asked"
        assert w.fleet.drain(w.task) == "waiting"
        new = w.row
        assert (new["state"], new["editor"]) == ("pending", ANN) and new["asked"] > old["asked"]
        assert new["digest"] != old["digest"]
        asked = [event for event in w.fleet.events(w.task) if isinstance(event, ApprovalAsked)]
        assert asked[-1].args == '{"count":10,"item":"a box of pears"}' and asked[-1].editor == ANN
        with pytest.raises(Refused) as refused:
            w.says(BEN, digest=old["digest"])
        assert refused.value.code == 409, "a button for the old arguments approves nothing"
        if "four_eyes" in rule:
            with pytest.raises(Refused) as refused:
                w.says(ANN)
            assert refused.value.kind == "own_request", "the editor counts as one who asks"
        else:
            assert w.says(BEN).state == "voted"
        assert w.says(CLEO).state == "approved"
        assert w.fleet.drain(w.task) == "done" and w.sent == ["10 x a box of pears"]
