"""What a card shows of a call is what runs: the same members with the same values, for each tool there is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.test_card import card, every_tool
from twelvefold.canonical import call_digest, canonical
from twelvefold.schema import arguments_of, menu_entry, stored_call
from twelvefold.tool import Tool

SIMPLE: dict[str, Any] = {"string": "pears", "integer": 3, "number": 3, "boolean": True, "array": [], "object": {}}


def example(schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    """A value of this schema: its first example, or something simple that fits."""
    if "$ref" in schema:
        return example(defs[schema["$ref"].rpartition("/")[2]], defs)
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    if "const" in schema or "default" in schema:
        return schema.get("const", schema.get("default"))
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return example(schema[name][0], defs)
    if "properties" in schema:
        return {name: example(inner, defs) for name, inner in schema["properties"].items()}
    if schema["type"] == "integer":
        return max(3, schema.get("minimum", 3))
    return SIMPLE[schema["type"]]


def chosen(tool: type[Tool[Any]]) -> str:
    """The arguments of a call of this tool, as they are stored."""
    schema = menu_entry(tool)["parameters"]
    given = example({"properties": schema["properties"]}, schema.get("$defs", {}))
    given |= {name: field.examples[0] for name, field in tool.model_fields.items() if field.examples}
    return arguments_of(tool.model_validate(given))


TOOLS = pytest.mark.parametrize("tool", list(every_tool()), ids=lambda tool: f"{tool.__module__}.{tool.__name__}")


@TOOLS
def test_every_member_that_is_shown_runs_and_every_member_that_runs_is_shown(tool: type[Tool[Any]]) -> None:
    args = chosen(tool)
    shown = yaml.safe_load(card(args=args).arguments) if json.loads(args) else {}
    runs = stored_call({tool.__spec__.name: tool}, {}, tool.__spec__.name, args)
    assert set(shown) == set(type(runs).model_fields) == set(json.loads(args))
    assert shown == yaml.safe_load(canonical(json.loads(args))), "the card says what is stored"
    assert arguments_of(runs) == args, "and what is stored is what runs"


@TOOLS
def test_no_member_of_a_call_can_change_without_its_approval(tool: type[Tool[Any]]) -> None:
    args = json.loads(chosen(tool))
    approved = call_digest("t", 1, tool.__spec__.name, canonical(args), "{}", "")
    for name in args:
        other = canonical({**args, name: "another"})
        assert call_digest("t", 1, tool.__spec__.name, other, "{}", "") != approved, name
