"""The directory: names for agents and models, addresses for letters and rows, and never the one for the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.plays import LOOKER, played
from tests.property.test_reducer import numbers
from twelvefold import Agent, AskHuman, DeclarationError, to
from twelvefold.directory import ADDRESS, Directory
from twelvefold.effects import AskModel
from twelvefold.shape import Row
from twelvefold.window import build
from workers.registry import Registry, load
from workers.settings import ConfigurationError
from workers.settings import load as configured

ENOUGH = {"DATABASE_URL": "postgresql://app@localhost/x", "BROKER_URL": "redis://localhost/0"}
OPS = Directory(names={"refund-ops": ("ann@shop.example", "ben@shop.example"), "ann": ("ann@shop.example",)})


def test_a_name_stands_for_its_addresses_and_what_is_none_stays_as_it_is() -> None:
    assert OPS.resolve("refund-ops, eve@x.example") == "ann@shop.example, ben@shop.example, eve@x.example"
    assert OPS.resolve("ann, refund-ops") == "ann@shop.example, ben@shop.example"
    assert (OPS.resolve("#desk"), OPS.resolve(""), OPS.addresses("ann")) == ("#desk", "", ("ann@shop.example",))


def test_the_setting_is_read_and_its_file_too_and_a_wrong_one_is_refused_at_start(tmp_path: Any) -> None:
    text = '{"refund-ops": "Ann@shop.example, ben@shop.example", "ann": ["ann@shop.example"]}'
    assert configured({**ENOUGH, "TWELVEFOLD_DIRECTORY": text}).directory == OPS
    (tmp_path / "people.json").write_text(text)
    assert configured({**ENOUGH, "TWELVEFOLD_DIRECTORY_FILE": str(tmp_path / "people.json")}).directory == OPS


@pytest.mark.parametrize(
    "text",
    ['{"a b": "x@y.example"}', '{"ops": ""}', '{"ops": "nobody"}', '["ops"]', "ops=x@y.example", '{"o@x": "a@b.c"}'],
)
def test_a_directory_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TWELVEFOLD_DIRECTORY"):
        configured({**ENOUGH, "TWELVEFOLD_DIRECTORY": text})


def entry(**declared: Any) -> Registry:
    """A registry of one agent."""
    from workers.registry import Loaded

    agent = Agent(**{"name": "a", "tools": [], "prompt": "a.md"} | declared)
    return Registry([Loaded(agent, "", "1", None)])


def test_names_that_stand_for_nobody_are_refused_at_start() -> None:
    entry(tools=[AskHuman], people=["ann", "#desk"], delivery=[to.email("refund-ops")]).check_names(OPS)
    entry(tools=[AskHuman], people=["ben"]).check_names(Directory())
    for declared in ({"tools": [AskHuman], "people": ["ben"]}, {"delivery": [to.email("ben")]}):
        with pytest.raises(DeclarationError, match="'ben', used by a, is not in the directory"):
            entry(**declared).check_names(OPS)
    with pytest.raises(DeclarationError, match="TWELVEFOLD_DIRECTORY"):
        entry(delivery=[to.email("ben")]).check_names(Directory())
    load("tests.agents").check_names(Directory())


@pytest.mark.parametrize("people", [[], ["ann@shop.example"], ["an n"], [""]])
def test_people_are_declared_by_name_and_with_the_tool_that_asks_them(people: list[str]) -> None:
    with pytest.raises(DeclarationError, match="people="):
        Agent(name="a", tools=[AskHuman], people=people)


def test_the_model_may_ask_only_whom_the_agent_declares() -> None:
    agent = Agent(name="a", tools=[AskHuman], people=["ann", "ops"])
    assert agent.menu_entries["ask_human"]["parameters"]["properties"]["target"]["enum"] == ["ann", "ops"]
    assert "ask_human" not in Agent(name="b", tools=[]).menu


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("from Ann@Shop.example.", "from ann."),
        ("<ben@shop.example>", "<refund-ops>"),
        ("mailto:ann@shop.example?x", "mailto:ann?x"),
        ("uses actions/checkout@v4 and pad@1.2.3", "uses actions/checkout@v4 and pad@1.2.3"),
        ("@ann, look", "@ann, look"),
    ],
)
def test_people_are_shown_by_name_and_other_words_stay(text: str, shown: str) -> None:
    assert OPS.masked(text) == shown


def test_a_stranger_has_one_name_that_tells_nothing() -> None:
    first, again, other = (OPS.name_of(a) for a in ("eve@x.example", "EVE@x.example", "dan@x.example"))
    assert first == again != other and "eve" not in first


ADDRESSES = st.builds(
    "{}@{}.{}".format,
    st.text("abc.+-_äö09", min_size=1, max_size=8), st.text("abcé0-", min_size=1, max_size=8),
    st.sampled_from(["example", "de", "co.uk", "xn--p1ai"]),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(ADDRESSES, min_size=1, max_size=3), st.integers(0, 10_000))
def test_no_prompt_of_any_play_holds_an_address(found: list[str], seed: int) -> None:
    texts = [
        f"{before}{address}{after}" for address in found for before, after in (("", ""), ("<", ">"), ("a ", ", b"))
    ]
    play = played(numbers(seed, 30), agent=LOOKER, texts=texts)
    rows = [Row(r.seq, type(r.event).__name__, r.event.version, r.event.data) for r in play.log]
    window = build(LOOKER, play.task, "prompt", rows, AskModel(1), OPS)
    said = window.user + json.dumps(window.menu)
    assert not ADDRESS.search(said)
    for address in found:
        assert address not in said
