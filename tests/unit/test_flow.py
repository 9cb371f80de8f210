"""Limits as data: what they are made of, and what is refused with how to mend it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from twelvefold import Agent, DeclarationError, Flow
from workers.flows import Flows


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0}, {"concurrency": 1001}, {"per_key": 2}, {"key": str, "per_key": 0}, {"rate": "10"},
        {"rate": "0/1m"}, {"rate": "10/1w"}, {"rate": "2000/1m"}, {"rate": "10/0m"}, {"priority": 101},
    ],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match="Flow: "):
        Flow(**wrong)


def test_a_limit_says_what_it_holds() -> None:
    flow = Flow(concurrency=5, key=lambda m: m.text or None, per_key=2, rate="10/2m", priority=lambda m: len(m.text))
    assert flow.begins == (10, timedelta(minutes=2)) and Flow().begins is None
    agents = {"a": Agent(name="a", tools=[], flow=flow), "b": Agent(name="b", tools=[])}
    flows = Flows(agents)
    assert (list(json.loads(flows.free)), list(json.loads(flows.limited)), flows.any) == (["b"], ["a"], True)
    assert [each.told for each in flows.of("a", "x", begins=True, tenant=9)] == [
        "agent a: 5 steps at once", "key a x: 2 steps at once", "rate a: 10 tasks begin within 120 s",
        "tenant: 9 steps at once",
    ]  # fmt: skip
    assert [each.scope for each in flows.of("a", None, begins=False)] == ["agent a"]
    assert flows.of("b", None, begins=True) == [] and flows.of("gone", None, begins=True) == []
    assert not Flows({"b": agents["b"]}).any
    with pytest.raises(ValueError, match="priority 200"):
        Flow(priority=lambda m: 200).priority_of(None)
