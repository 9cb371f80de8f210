"""What the type checker knows about an agent: `make check` fails where an ignore below is no longer needed."""

from __future__ import annotations

from typing import assert_type

import pytest
from pydantic import ValidationError

from tests.property.plays import PLAYER, Look, Paid, Pay
from twelvefold import Task
from twelvefold.testing import gives, play

TASK = play(PLAYER, {"text": "hello"}, gives(Look(topic="x"), ["y"]))


def test_a_last_result_has_the_type_that_the_tool_promises() -> None:
    assert_type(TASK.last(Look), list[str] | None)
    assert_type(TASK.last(Pay), Paid | None)
    assert TASK.last(Look) == ["y"]


def test_a_typo_in_a_call_is_a_type_error() -> None:
    with pytest.raises(ValidationError):
        Look(topics="x")  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Look(topic=5)  # type: ignore[arg-type]


def test_a_typo_in_a_rule_is_a_type_error() -> None:
    def rule(call: Pay, task: Task) -> bool:
        return call.ammount > 5 or task.didd(Pay)  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(AttributeError):
        rule(Pay(text="x"), TASK)


def test_a_call_cannot_be_changed_after_it_was_made() -> None:
    with pytest.raises(ValidationError):
        Pay(text="x").text = "y"  # type: ignore[misc]
