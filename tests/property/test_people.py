"""Whatever people do at one moment and from several channels: no double, no unauthorised and no lost decision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.callers import callers
from tests.curious import ANN, BEN, curious
from tests.property.people import EVE, Click, People, World, script
from workers import answers, decisions
from workers.store import approvals, questions

DEFAULT, LONG, FAULTY = 500, 10_000, 60
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@contextmanager
def world(database: Any) -> Iterator[World]:
    """One fleet for all cases."""
    with curious(database, script, db_pool=10) as f, callers(f) as c:
        People.world = World(f, c)
        yield People.world


def play(cases: int, *, derandomize: bool = True) -> None:
    """So many cases. None is made smaller when it fails: where people race, a smaller one may well pass."""
    options = settings(
        max_examples=cases, stateful_step_count=5, deadline=None, derandomize=derandomize, database=None,
        suppress_health_check=CHECKS, phases=(Phase.generate,), report_multiple_bugs=False,
    )  # fmt: skip
    run_state_machine_as_test(People, settings=options)


@pytest.mark.timeout(400)
def test_no_click_runs_twice_unauthorised_or_is_lost(fresh_database: Any) -> None:
    with world(fresh_database) as made:
        play(DEFAULT)
        assert made.cases >= DEFAULT and made.seen == []


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_click_runs_twice_unauthorised_or_is_lost_in_ten_thousand_cases(fresh_database: Any) -> None:
    with world(fresh_database) as made:
        play(LONG, derandomize=False)
        assert made.cases >= LONG and made.seen == []


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """The store takes every decision, whatever stands on the row."""
    find, every, question = approvals.question, approvals.DECIDE, questions.find

    def pending(*given: Any) -> Any:
        row = find(*given)
        return None if row is None else replace(row, state="pending")

    patch.setattr(approvals, "question", pending)
    patch.setattr(approvals, "DECIDE", every.replace("AND state = ANY(%(open)s)", ""))
    patch.setattr(questions, "ANSWER", questions.ANSWER.replace("AND state = ANY(%(open)s)", ""))
    patch.setattr(
        questions, "find", lambda *given: [replace(r, state="pending", answer=None) for r in question(*given)]
    )


def no_digest(patch: pytest.MonkeyPatch) -> None:
    """The store does not look at what was shown."""
    judged = decisions._judged
    patch.setattr(decisions, "_judged", lambda row, wish: judged(row, replace(wish, digest=None)))


def no_responders(patch: pytest.MonkeyPatch) -> None:
    """The store does not look at who decides."""
    patch.setattr(decisions, "_forbidden", lambda *_: None)
    patch.setattr(answers, "may_answer", lambda *_: True)


def attack() -> None:
    """The machine under clicks alone, most of them flawed, until it fails."""
    for seed in range(FAULTY):
        dice, machine = Random(seed), People()
        machine.asked(kind=dice.choice(["approval", "question"]), risk="low", quorum=1)
        for _ in range(4):
            channel, who = dice.choice(["page", "api"]), dice.choice([ANN, BEN, EVE])
            flaw = dice.choice(["", "digest", "digest"])
            machine.click(wanted=[Click(channel, who, dice.randrange(2), flaw)], working=dice.random() < 0.3)
        machine.teardown()


@pytest.mark.parametrize(
    ("fault", "violation"),
    [
        (no_compare_and_set, "two decisions|two answers|unauthorised|not told of|is not shown"),
        (no_digest, "unauthorised"),
        (no_responders, "unauthorised"),
    ],
)
def test_the_machine_sees_a_store_without_one_of_its_checks(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, fault: Any, violation: str
) -> None:
    with world(fresh_database) as made:
        fault(monkeypatch)
        with suppress(AssertionError):
            attack()
        assert re.search(violation, "\n".join(made.seen)), made.seen


def test_the_same_attack_finds_nothing_where_every_check_is_there(fresh_database: Any) -> None:
    with world(fresh_database) as made:
        attack()
        assert made.seen == []
