"""Ids sort by time."""

from __future__ import annotations

import time

import pytest

from workers.ids import uuid7


def test_ids_made_one_after_the_other_sort_in_that_order() -> None:
    made = [uuid7() for _ in range(2000)]
    assert made == sorted(made) and len(set(made)) == len(made)


@pytest.mark.parametrize("rest", [0, 1, 499_999, 999_999])
def test_an_id_is_of_version_seven_and_begins_with_its_millisecond(monkeypatch: pytest.MonkeyPatch, rest: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123 * 1_000_000 + rest)
    found = uuid7()
    assert (found.version, found.variant) == (7, "specified in RFC 4122")
    assert found.int >> 80 == 1_700_000_000_123
