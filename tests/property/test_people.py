"""Whatever people do at one moment and from several channels: no double, no unauthorised and no lost decision."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.callers import callers
from tests.curious import curious
from tests.hands import change
from tests.property.crowd import World
from tests.property.papers import Fire, Sign, script
from tests.property.people import People
from twelvefold import AskHuman
from workers import answers, decisions
from workers.store import approvals, questions

DEFAULT, LONG, FAULTY = 500, 10_000, 60
PARTS = 20
"""The long run in pieces, each with a seed of its own."""
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@contextmanager
def world(database: Any) -> Iterator[World]:
    """One fleet for all cases."""
    with curious(database, script, db_pool=10) as f:
        change(f, "curious", tools=[Sign, Fire, AskHuman])
        with callers(f) as c:
            People.world = World(f, c)
            yield People.world


def play(cases: int, *, with_seed: int | None = None) -> None:
    """So many cases, the same ones every time unless a seed is given. None is made smaller when it fails: where people
    race, a smaller one may well pass.
    """
    options = settings(
        max_examples=cases, stateful_step_count=6, deadline=None, derandomize=with_seed is None, database=None,
        suppress_health_check=CHECKS, phases=(Phase.generate,), report_multiple_bugs=False,
    )  # fmt: skip
    machine = type("Seeded", (People,), {})
    run_state_machine_as_test(machine if with_seed is None else seed(with_seed)(machine), settings=options)


@pytest.mark.timeout(400)
def test_no_click_runs_twice_unauthorised_or_is_lost(fresh_database: Any) -> None:
    with world(fresh_database) as made:
        play(DEFAULT)
        assert made.cases >= DEFAULT and made.seen == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_click_runs_twice_unauthorised_or_is_lost_in_ten_thousand_cases(fresh_database: Any, part: int) -> None:
    number = int(os.environ.get("PEOPLE_SEED", SystemRandom().randrange(10**9))) + part
    print(f"part {part}: PEOPLE_SEED={number - part} plays it again")  # shown when it fails
    with world(fresh_database) as made:
        play(LONG // PARTS, with_seed=number)
        assert made.cases >= LONG // PARTS and made.seen == []


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


@pytest.mark.parametrize(
    ("fault", "violation"),
    [
        (no_compare_and_set, "two decisions|two answers|it was over"),
        (no_digest, "unauthorised.*flaw='(digest|old)'"),
        (no_responders, "unauthorised.*who='(eve@evil|no@)"),
    ],
)
def test_the_machine_sees_a_store_without_one_of_its_checks(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, fault: Any, violation: str
) -> None:
    with world(fresh_database) as made:
        fault(monkeypatch)
        with pytest.raises((AssertionError, ExceptionGroup)):
            play(FAULTY)
        assert re.search(violation, "\n".join(made.seen)), made.seen
