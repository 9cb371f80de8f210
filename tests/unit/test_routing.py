"""Messages that name no agent are routed by declarations: code, never a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from twelvefold import Agent, DeclarationError, Message, on
from workers.registry import Loaded, Registry


class Order(BaseModel):
    """What no free text can be."""

    number: int


def entry(name: str, *takes: Callable[[str], bool] | None, accepts: type = Message) -> Loaded:
    """An agent that listens by these rules."""
    agent = Agent(name=name, tools=[], accepts=accepts, triggers=[on.api(each) for each in takes])
    return Loaded(agent, "prompt", "v1", None)


def test_who_says_yes_goes_before_who_takes_the_rest() -> None:
    registry = Registry([
        entry("rest", None), entry("refunds", lambda text: "refund" in text), entry("deaf"),
        entry("both", lambda text: "parcel" in text, lambda text: "late" in text),
    ])  # fmt: skip

    def names(text: str) -> list[str]:
        return [loaded.agent.name for loaded in registry.takers(text)]

    assert names("a refund") == ["refunds"]
    assert names("hello") == ["rest"]
    assert names("a late refund") == ["refunds", "both"], "more than one, for the caller to refuse"
    assert names("a late parcel") == ["both"], "twice the same one is one"


def test_without_a_rule_nobody_takes_anything() -> None:
    assert Registry([entry("deaf")]).takers("hello") == []


def test_two_that_take_the_rest_are_refused_at_load() -> None:
    with pytest.raises(DeclarationError, match=r"on\.api\(takes="):
        Registry([entry("one", None), entry("two", None)])


def test_an_agent_that_takes_no_message_cannot_listen_for_one() -> None:
    with pytest.raises(DeclarationError, match="brings a Message"):
        Registry([entry("orders", None, accepts=Order)])
