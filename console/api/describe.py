"""What the API can do, told by the table it is made of: as OpenAPI for programs, and as one page for people.

Neither needs a token, since both are the same for everybody; the page asks no other host for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from .operations import Operation
from .request import LONGEST_WAIT_S

REF = "#/components/schemas/{model}"
TEXT = {"schema": {"type": "string"}}
NO = {"description": "No; `detail` says what to do.", "content": {"application/problem+json": {"schema": {
    "type": "object", "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}}}}  # fmt: skip
JSON_OBJECT = {"application/json": {"schema": {"type": "object"}}}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace}pre{overflow:auto;background:#8881;padding:.6rem}"
    "h2{font-size:1.1rem;margin-top:2rem}"
)
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}  # fmt: skip


def described(operations: Sequence[Operation]) -> list[BaseRoute]:
    """The two routes; what they answer is made once."""
    document = openapi(operations)
    text = page(document)

    def as_document(_: Request) -> Response:
        return JSONResponse(document)

    def as_page(_: Request) -> Response:
        return HTMLResponse(text, headers=PAGE_HEADERS)

    return [Route("/openapi.json", as_document, methods=["GET"]), Route("/docs", as_page, methods=["GET"])]


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    models = {model for o in operations for model in o.bodies}
    wanted = [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)]
    _, definitions = models_json_schema(wanted, ref_template=REF)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for o in operations:
        paths.setdefault(o.path, {})[o.method.lower()] = _operation(o)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Twelvefold control API", "version": "1"},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": definitions.get("$defs", {}),
        },
    }


def _operation(o: Operation) -> dict[str, Any]:
    name = f"{o.method} {o.path}".lower()
    said: dict[str, Any] = {
        "operationId": re.sub(r"[^a-z]+", "_", name).strip("_"),
        "summary": o.says,
        "description": f"Roles: {', '.join(dict.fromkeys((*o.roles, 'admin')))}.",
        "parameters": list(_parameters(o)),
        "responses": _responses(o),
    }
    if o.bodies:
        refs = [{"$ref": REF.format(model=model.__name__)} for model in o.bodies]
        schema = refs[0] if len(refs) == 1 else {"oneOf": refs}
        said["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return said


def _parameters(o: Operation) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", o.path):
        kind = {"type": "string", "format": "uuid"} if name == "id" else {"type": "integer"}
        yield {"name": name, "in": "path", "required": True, "schema": kind}
    yield from _query(o.query)
    if o.turn:
        seconds = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S}
        yield {"name": "wait", "in": "query", "description": "Seconds to wait for the turn.", "schema": seconds}
    if o.key:
        yield {"name": "Idempotency-Key", "in": "header", "description": "The same at every attempt.", **TEXT}
    if o.stream:
        yield {"name": "Last-Event-ID", "in": "header", "description": "Where a stream goes on.", **TEXT}


def _query(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    for name, schema in model.model_json_schema()["properties"].items() if model.model_fields else ():
        yield {"name": name, "in": "query", "schema": {k: v for k, v in schema.items() if k != "title"}}


def _responses(o: Operation) -> dict[str, Any]:
    content: dict[str, Any] = dict(JSON_OBJECT)
    if o.stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    done = {"description": "Done.", "content": content}
    kept = {"description": "Stored, and worked on from here.", "content": JSON_OBJECT}
    good = {"200": done} if o.method == "GET" else {"200": done, "202": kept} if o.turn else {"202": kept}
    return {**good, "default": NO}


def page(document: dict[str, Any]) -> str:
    """The document as one HTML page."""
    parts = [
        _section(method, path, o) for path, methods in document["paths"].items() for method, o in methods.items()
    ]  # fmt: skip
    schemas = "".join(
        f"<h2 id='{escape(name)}'>{escape(name)}</h2><pre>{escape(json.dumps(schema, indent=1))}</pre>"
        for name, schema in document["components"]["schemas"].items()
    )
    title = escape(document["info"]["title"])
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>"
        f"</head><body><h1>{title}</h1><p>For programs: <a href='/openapi.json'>/openapi.json</a></p>"
        f"{''.join(parts)}{schemas}</body></html>"
    )


def _section(method: str, path: str, o: dict[str, Any]) -> str:
    names = ", ".join(f"<code>{escape(p['name'])}</code>" for p in o["parameters"] if p["in"] != "path")
    schema = o.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    refs = [each["$ref"].rpartition("/")[2] for each in schema.get("oneOf", [schema]) if each]
    body = ", ".join(f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in refs)
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(o['summary'])}</p>"
        f"<p>{escape(o['description'])}{f' Parameters: {names}.' if names else ''}"
        f"{f' Body: {body}.' if body else ''}</p>"
    )
