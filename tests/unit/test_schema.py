"""Tools as a model reads them: every menu stays inside the strict subset; stored calls read across renames."""

from __future__ import annotations

import importlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from twelvefold import Agent, Ctx, Effect, Read
from twelvefold.errors import Rejection, Unreadable
from twelvefold.schema import arguments_of, menu_entry, read_call, stored_call
from twelvefold.tool import Tool

ROOT = Path(__file__).parents[2]
KEYWORDS = {
    "type", "enum", "const", "items", "properties", "anyOf", "$ref", "$defs", "description", "required",
    "additionalProperties",
}  # fmt: skip


class ByMail(BaseModel):
    kind: Literal["mail"]
    address: str


class ByPost(BaseModel):
    kind: Literal["post"]
    lines: list[str] = Field(min_length=1)


class Leaf(BaseModel):
    children: list[Leaf] = []


class Send(Effect[int]):
    """Send something. Use when it is ready, for example with kind=mail."""

    way: ByMail | ByPost = Field(discriminator="kind")
    amount: Decimal = Field(gt=0, examples=["12.50"], description="How much.")
    copies: int = Field(default=1, ge=1, le=5)
    tree: Leaf | None = None
    code: str = Field(pattern="^[A-Z]+$", max_length=9)

    def run(self, ctx: Ctx) -> int:
        """Never called here."""
        return 1


def corpus() -> list[Any]:
    names = [
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in ("agents", "tests/agents")
        for path in sorted((ROOT / folder).glob("*/agent.py"))
    ]
    agents: list[Agent] = [importlib.import_module(f"{name}.agent").agent for name in names]
    agents.append(Agent(name="sample", tools=[Send], delegates=["notes"]))
    return [pytest.param(tool, id=f"{agent.name}-{name}") for agent in agents for name, tool in agent.menu.items()]


@pytest.mark.parametrize("tool", corpus())
def test_every_tool_stays_inside_the_strict_subset(tool: type[Tool[Any]]) -> None:
    entry = menu_entry(tool)
    assert len(entry["name"]) <= 64 and entry["description"]
    parameters = entry["parameters"]
    assert parameters["type"] == "object" and "anyOf" not in parameters
    lint(parameters, parameters.get("$defs", {}))


def lint(node: dict[str, Any], definitions: dict[str, Any], depth: int = 1) -> None:
    """Raise AssertionError where strict structured output would refuse the schema."""
    assert depth <= 10
    assert node.keys() <= KEYWORDS, node.keys() - KEYWORDS
    assert node.keys() & {"type", "enum", "const", "anyOf", "$ref"}
    if "properties" in node:
        assert node["required"] == list(node["properties"])
        assert node["additionalProperties"] is False
    if "$ref" in node:
        assert node["$ref"].rpartition("/")[2] in definitions
    variants = [resolved(child, definitions) for child in node.get("anyOf", ())]
    firsts = [json.dumps(first_key(variant)) for variant in variants if "properties" in variant]
    assert len(firsts) == len(set(firsts)), "variants of a union begin with the same key"
    children = [*node.get("properties", {}).values(), *node.get("anyOf", ())]
    children += [node["items"]] if "items" in node else []
    for child in children:
        lint(child, definitions, depth + ("properties" in node))
    for child in node.get("$defs", {}).values():
        lint(child, definitions, depth + 1)


def resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return found


def first_key(variant: dict[str, Any]) -> Any:
    """The first property, with its constant: a discriminator that comes first tells the variants apart."""
    name, first = next(iter(variant["properties"].items()))
    return name, first.get("const") or first.get("enum")


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": False},
        {"type": "object", "properties": {}, "required": []},
        {"type": "string", "default": "x"},
        {"oneOf": []},
        {},
    ],
)
def test_the_linter_itself_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        lint(wrong, {})


def test_what_the_subset_cannot_say_is_said_in_words() -> None:
    properties = menu_entry(Send)["parameters"]["properties"]
    assert properties["amount"]["type"] == "string"
    assert properties["amount"]["description"] == (
        'How much.; more than 0; format decimal number such as 12.50; for example "12.50"'
    )
    assert "at least 1" in properties["copies"]["description"] and "at most 5" in properties["copies"]["description"]
    assert "matches ^[A-Z]+$" in properties["code"]["description"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"topic": "milk", "topic": "eggs"}', "the key 'topic' stands twice"),
        ('{"topic": NaN}', "NaN is not JSON"),
        ('{"topic": "milk"', "are not JSON"),
        ("", "are not JSON"),
        ("[" * 100_000, "are not JSON"),
        ("[]", "do not fit"),
        ("{}", "topic: Field required"),
        ('{"topic": 5}', "topic: Input should be a valid string, got 5"),
        ('{"topic": "milk", "size": 1}', "size: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_teach_with_an_example(arguments: str, words: str) -> None:
    with pytest.raises(Rejection) as rejected:
        read_call({"look": Look}, "look", arguments)
    assert (rejected.value.kind, rejected.value.tool) == ("arguments", "look")
    assert words in str(rejected.value) and '{"topic": "milk"}' in str(rejected.value)
    assert len(str(rejected.value)) < 1_000


class Look(Read[int]):
    """Look something up. Use before acting."""

    topic: str = Field(examples=["milk"])

    def run(self, ctx: Ctx) -> int:
        """Never called here."""
        return 1


def test_a_long_wrong_name_is_shortened() -> None:
    with pytest.raises(Rejection) as rejected:
        read_call({"look": Look}, "x" * 10_000, "{}")
    assert len(str(rejected.value)) < 300 and "Choose one of: look" in str(rejected.value)
    with pytest.raises(Rejection) as rejected:
        read_call({"look": Look}, "look", json.dumps({"y" * 10_000: 1}))
    assert len(str(rejected.value)) < 600


def test_amounts_keep_their_digits_on_the_way_in() -> None:
    call = read_call({"send": Send}, "send", '{"way":{"kind":"mail","address":"a"},"amount":0.10,"code":"A"}')
    assert json.loads(arguments_of(call))["amount"] == "0.10"


class FindThing(Read[int], was=("look", "look_up")):
    """Look something up. Use before acting."""

    subject: str
    limit: int = 5

    @classmethod
    def upgrade(cls, old: dict[str, Any]) -> dict[str, Any]:
        """`topic` is called `subject` now."""
        return {("subject" if name == "topic" else name): value for name, value in old.items()}

    def run(self, ctx: Ctx) -> int:
        """Never called here."""
        return 1


def test_a_stored_call_reads_under_its_new_name_and_shape() -> None:
    agent = Agent(name="a", tools=[FindThing])
    assert agent.renamed == {"look": "find_thing", "look_up": "find_thing"}
    for name, args in (("look", '{"topic":"milk"}'), ("find_thing", '{"subject":"milk","limit":5}')):
        assert stored_call(agent.menu, agent.renamed, name, args) == FindThing(subject="milk")


def test_a_stored_call_of_an_unknown_tool_is_left_to_newer_code() -> None:
    with pytest.raises(Unreadable, match=r"Declare was=\('gone',\)"):
        stored_call({"look": Look}, {}, "gone", "{}")
    with pytest.raises(Unreadable, match="does not read"):
        stored_call({"look": Look}, {}, "look", '{"other": 1}')


def test_a_menu_text_is_the_same_for_the_same_tools() -> None:
    agent = Agent(name="a", tools=[Look])
    names = tuple(agent.menu)
    assert agent.menu_text(names) is agent.menu_text(names)
    assert [entry["name"] for entry in json.loads(agent.menu_text(names))] == list(names)
