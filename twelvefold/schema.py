"""Tool class to JSON schema in the portable strict subset, and a model's reply back to a tool instance.

The subset is what strict structured output of the OpenAI API and its compatible servers share: objects with every
property required and no others, anyOf, enum, const, $ref; no maps, tuples, defaults, oneOf. Pydantic stays the
judge of the reply, so what the subset cannot say goes into the description. Source: integrations, section 8.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from .canonical import canonical
from .errors import DeclarationError, Rejection, Unreadable
from .text import clean_json, shorten
from .tool import Tool

KEPT = {"type", "enum", "const", "items", "properties", "anyOf", "$ref", "$defs", "description", "required"}
SAID = {
    "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "more than {}",
    "multipleOf": "a multiple of {}", "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "pattern": "matches {}", "format": "format {}", "minItems": "at least {} items", "maxItems": "at most {} items",
}  # fmt: skip
SHAPED = {"type", "enum", "const", "anyOf", "oneOf", "$ref"}
MOST_DEPTH = 10
SAMPLES: dict[Any, Any] = {bool: True, int: 1, Decimal: "12.50", date: "2026-12-31", datetime: "2026-12-31T12:00:00Z"}
FORBIDDEN = {"prefixItems", "patternProperties", "not", "allOf", "if", "dependentRequired", "dependentSchemas"}


def menu_entry(tool: type[Tool[Any]]) -> dict[str, Any]:
    """The tool as a model reads it: {name, description, parameters}."""
    schema = tool.model_json_schema(schema_generator=_Generator)
    schema.pop("description", None)
    doc = " ".join((tool.__doc__ or "").split())
    return {"name": tool.__spec__.name, "description": doc, "parameters": _portable(schema, tool.__name__)}


def check_portable(tool: type[Tool[Any]]) -> None:
    """Raise DeclarationError where arguments leave the portable subset or the result would not come back unchanged."""
    parameters = menu_entry(tool)["parameters"]
    if _depth(parameters, parameters.get("$defs", {}), ()) > MOST_DEPTH:
        raise DeclarationError(f"{tool.__name__}: arguments nest deeper than {MOST_DEPTH} levels. Flatten them.")
    check_exact(tool.__spec__.result, f"{tool.__name__}: its result")


def check_exact(adapter: TypeAdapter[Any], where: str) -> None:
    """Raise DeclarationError where a stored value of this type could hold a float."""
    schema = adapter.json_schema(mode="serialization", schema_generator=_Generator)
    if _has_number(schema):
        raise DeclarationError(f"{where} holds a float, which loses digits. Use Decimal for amounts, int for counts.")


def _has_number(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("type") == "number" or any(_has_number(child) for child in node.values())
    return isinstance(node, list) and any(_has_number(child) for child in node)


def _portable(node: dict[str, Any], where: str) -> dict[str, Any]:
    _refuse_unportable(node, where)
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            out[key] = {name: _portable(child, f"{where}.{name}") for name, child in value.items()}
        elif key in ("anyOf", "oneOf"):
            out["anyOf"] = [_portable(child, where) for child in value]
        elif key == "items":
            out[key] = _portable(value, f"{where}[]")
        elif key in KEPT:
            out[key] = value
    if "properties" in out:
        out["required"] = list(out["properties"])
        out["additionalProperties"] = False
    said = _description(node)
    return out | ({"description": said} if said else {})


def _refuse_unportable(node: dict[str, Any], where: str) -> None:
    wrong = sorted(FORBIDDEN & node.keys())
    if wrong:
        raise DeclarationError(f"{where}: {wrong[0]} is not portable. Use a list or a model, not a tuple.")
    if node.get("type") == "number":
        raise DeclarationError(f"{where}: a float loses digits. Use Decimal for amounts, int for counts.")
    if node.get("additionalProperties", False) is not False:
        raise DeclarationError(f"{where}: a map of free keys is not portable. Use a list of models with a name field.")
    if not SHAPED & node.keys():
        raise DeclarationError(f"{where}: Any says nothing about its shape. Declare a model, or a list of one type.")
    if node.get("type") == "object" and "properties" not in node:
        raise DeclarationError(f"{where}: an object without declared fields is not portable. Declare a model.")


def _description(node: dict[str, Any]) -> str:
    parts = [node["description"]] if node.get("description") else []
    parts += [text.format(node[key]) for key, text in SAID.items() if key in node]
    if "examples" in node:
        parts.append("for example " + ", ".join(canonical(e) for e in node["examples"]))
    return "; ".join(parts)


class _Generator(GenerateJsonSchema):
    """Amounts as text: a JSON number would lose digits."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A string that says what it holds."""
        limits = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
        said = {name: schema[key] for key, name in limits.items() if key in schema}  # type: ignore[literal-required]
        return {"type": "string", "format": "decimal number such as 12.50", **said}


def _depth(node: Any, definitions: dict[str, Any], seen: tuple[str, ...]) -> int:
    """How deep objects nest. A definition that holds itself counts once: recursion is allowed."""
    if isinstance(node, list):
        return max((_depth(child, definitions, seen) for child in node), default=0)
    if not isinstance(node, dict):
        return 0
    name = node.get("$ref", "").rpartition("/")[2]
    if name in definitions:
        return 0 if name in seen else _depth(definitions[name], definitions, (*seen, name))
    inside = [child for key, child in node.items() if key != "$defs"]
    return ("properties" in node) + _depth(inside, definitions, seen)


def read_call(menu: Mapping[str, type[Tool[Any]]], name: str, arguments: str) -> Tool[Any]:
    """The call a model wrote, as an instance of its tool. Raises Rejection with a text that teaches."""
    tool = menu.get(name)
    if tool is None:
        raise Rejection(
            f"There is no tool {shorten(name, 80)!r}. Choose one of: {', '.join(sorted(menu))}.",
            kind="unknown_tool", tool=shorten(name, 80),
        )  # fmt: skip
    try:
        value = clean_json(_strict(arguments))
    except (ValueError, RecursionError) as error:
        raise Rejection(
            f"The arguments of {name} are not JSON ({shorten(str(error), 200)}). "
            f"Send one JSON object, for example {_example(tool)}.",
            kind="arguments", tool=name,
        ) from None  # fmt: skip
    try:
        return tool.model_validate(value)
    except ValidationError as error:
        raise Rejection(_teach(tool, error), kind="arguments", tool=name) from None


def stored_call(menu: Mapping[str, type[Tool[Any]]], renamed: Mapping[str, str], name: str, args: str) -> Tool[Any]:
    """A stored call as today's tool, through `was` and `upgrade`. Raises Unreadable when it cannot be read."""
    tool = stored_tool(menu, renamed, name)
    try:
        return tool.model_validate(tool.upgrade(json.loads(args)))
    except ValidationError as error:
        raise Unreadable(f"The stored call of {name!r} does not read: {error.error_count()} field(s).") from None


def stored_tool(menu: Mapping[str, type[Tool[Any]]], renamed: Mapping[str, str], name: str) -> type[Tool[Any]]:
    """Today's tool of a stored name. Raises Unreadable when there is none."""
    tool = menu.get(renamed.get(name, name))
    if tool is None:
        raise Unreadable(
            f"The stored call names the tool {name!r}, which this code does not have. Declare was=({name!r},)."
        )
    return tool


def arguments_of(call: Tool[Any]) -> str:
    """The call's arguments as canonical JSON."""
    return canonical(call.model_dump(mode="json"))


def _teach(tool: type[Tool[Any]], error: ValidationError) -> str:
    lines = [f"The arguments of {tool.__spec__.name} do not fit:"]
    for item in error.errors(include_url=False, include_context=False)[:6]:
        place = shorten(".".join(str(p) for p in item["loc"]), 80) or "arguments"
        got = "it is missing" if item["type"] == "missing" else f"got {_short(item['input'])}"
        known = f"; the arguments are {', '.join(tool.model_fields)}" if item["type"] == "extra_forbidden" else ""
        lines.append(f"- {place}: {item['msg']}, {got}{known}")
    lines.append(f"Correct this and call it again, for example {_example(tool)}.")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _example(tool: type[Tool[Any]]) -> str:
    fields = tool.model_fields
    return json.dumps(
        {name: _sample(name, f) for name, f in fields.items() if f.is_required()}, default=str, ensure_ascii=False
    )  # fmt: skip


def _sample(name: str, field: FieldInfo) -> Any:
    """A value that shows what is expected: the author's example, or one that tells the type."""
    if field.examples:
        return field.examples[0]
    chosen = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if chosen:
        return chosen[0]
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        inner = field.annotation.model_fields.items()
        return {key: _sample(key, found) for key, found in inner if found.is_required()}
    return SAMPLES.get(field.annotation, f"<{name}>")


def _strict(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=Decimal)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
