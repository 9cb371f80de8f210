"""The description of the API: it is the table the routes are made of, and the page asks no other host for anything."""

from __future__ import annotations

import re
from typing import Any

from console.api.describe import openapi, page
from console.api.operations import OPERATIONS, Operation

DOCUMENT = openapi(OPERATIONS)


def each() -> list[tuple[Operation, dict[str, Any]]]:
    return [(o, DOCUMENT["paths"][o.path][o.method.lower()]) for o in OPERATIONS]


def refs(value: Any) -> list[str]:
    """Every reference in a document."""
    if isinstance(value, dict):
        found = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return found + [ref for inner in value.values() for ref in refs(inner)]
    return [ref for inner in value for ref in refs(inner)] if isinstance(value, list) else []


def test_every_operation_is_described_and_nothing_else_is() -> None:
    told = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert told == {(o.method.lower(), o.path) for o in OPERATIONS} and len(OPERATIONS) == len(told)
    names = [said["operationId"] for _, said in each()]
    assert len(set(names)) == len(names)
    for o, said in each():
        assert said["summary"] and said["summary"] != o.handler.__name__
        assert all(role in said["description"] for role in o.roles)


def test_every_reference_leads_somewhere_and_every_body_is_told_with_its_limits() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert {ref.rpartition("/")[2] for ref in refs(DOCUMENT)} <= schemas.keys()
    for model in (model for o in OPERATIONS for model in o.bodies):
        told = schemas[model.__name__]
        assert told["additionalProperties"] is False
        assert told.get("properties", {}).keys() == model.model_fields.keys()
    assert schemas["Throw"]["properties"]["kind"]["enum"] == ["freeze", "pause", "intake"]


def test_parameters_are_those_of_the_path_the_query_and_the_headers() -> None:
    for o, said in each():
        told = {(p["in"], p["name"]) for p in said["parameters"]}
        wanted = {("path", name) for name in re.findall(r"{(\w+)}", o.path)}
        wanted |= {("query", name) for name in o.query.model_fields}
        wanted |= {("query", "wait")} if o.turn else set()
        wanted |= {("header", "Idempotency-Key")} if o.key else set()
        wanted |= {("header", "Last-Event-ID")} if o.stream else set()
        assert told == wanted


def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    text = page(DOCUMENT)
    for o in OPERATIONS:
        assert f"<code>{o.method} {o.path}</code>" in text
    assert not re.findall(r"<(?:script|img|link|iframe)|src=|url\(|@import|https?://", text)
