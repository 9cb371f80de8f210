"""The two wire forms of a decision on chat.completions, both ways; no I/O.

| form          | the question carries                          | the decision comes back as                     |
|---------------|-----------------------------------------------|------------------------------------------------|
| `tools`       | functions, `tool_choice: required`            | `tool_calls`                                   |
| `json_schema` | a schema whose root is `{"call": one of ...}` | content `{"call": {"tool": ..., "arguments"}}` |

Nothing is repaired: arguments stay the text the model wrote, with duplicate keys and all, and content that is no such
JSON stays text. Who judges it is the core.
"""

from __future__ import annotations

import json
import re
from typing import Any

from twelvefold.ports import ModelReply, ModelRequest, ProposedCall

from .profiles import Profile, WireForm

_READER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def written(body: dict[str, Any]) -> str:
    """The body as the text that goes over the wire."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def question(request: ModelRequest, profile: Profile) -> dict[str, Any]:
    """The request body, with what the endpoint knows. An empty menu asks for plain text."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}],
        "temperature": request.temperature,
        profile.length: request.max_tokens,
    }
    if profile.seed:
        body["seed"] = request.seed
    if not request.menu:
        return body
    if profile.form == "json_schema":
        return body | {"response_format": _response_format(request.menu)}
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["parameters"],
                **({"strict": True} if profile.strict else {}),
            },
        }
        for tool in request.menu
    ]
    body["tools"] = tools
    if profile.tool_choice:
        body["tool_choice"] = "required"
    if profile.parallel:
        body["parallel_tool_calls"] = False
    return body


def _response_format(menu: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The menu as one schema. The discriminator comes first: variants of a union must differ in their first key."""
    shared: dict[str, Any] = {}
    variants: list[dict[str, Any]] = []
    for tool in menu:
        name = tool["name"]
        parameters = _moved(tool["parameters"], name)
        shared |= {f"{name}__{key}": value for key, value in parameters.pop("$defs", {}).items()}
        described = {"description": tool["description"]} if tool.get("description") else {}
        variants.append(_object({"tool": {"type": "string", "const": name}, "arguments": parameters}) | described)
    schema = _object({"call": {"anyOf": variants}})
    if shared:
        schema["$defs"] = shared
    return {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(node: Any, name: str) -> Any:
    """A copy of a tool's schema whose references point at its definitions under their new names at the root."""
    if isinstance(node, dict):
        copy = {key: _moved(value, name) for key, value in node.items()}
        target = copy.get("$ref")
        if isinstance(target, str):
            copy["$ref"] = re.sub(r"^#/\$defs/", f"#/$defs/{name}__", target)
        return copy
    return [_moved(item, name) for item in node] if isinstance(node, list) else node


def answer(body: Any, form: WireForm, *, raw: str, request_id: str | None, duration_ms: int) -> ModelReply | None:
    """The reply in a decoded answer body, or None when there is no choice in it."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return None
    text = _text(message.get("content"))
    calls = tuple(_proposed(call) for call in message.get("tool_calls") or () if isinstance(call, dict))
    if form == "json_schema" and not calls and text is not None:
        call = call_in(text)
        calls, text = ((call,), None) if call else ((), text)
    usage = body.get("usage")
    return ModelReply(
        calls=calls,
        text=text,
        refusal=_text(message.get("refusal")),
        finish=_text(choice.get("finish_reason")) or "stop",
        raw=raw,
        request_id=request_id,
        model=_text(body.get("model")) or "",
        fingerprint=_text(body.get("system_fingerprint")),
        tokens_in=_count(usage, "prompt_tokens"),
        tokens_out=_count(usage, "completion_tokens"),
        duration_ms=duration_ms,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and value > 0 else 0


def _proposed(call: dict[str, Any]) -> ProposedCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ProposedCall(
        name=_text(function.get("name")) or "",
        arguments=_text(arguments) or "",
        provider_id=_text(call.get("id")) or "",
    )


def call_in(content: str) -> ProposedCall | None:
    """The call in the content of the json_schema form, its arguments cut out as written; None for anything else."""
    try:
        root, end = _members(content, _space(content, 0))
        if _space(content, end) != len(content) or set(root) != {"call"}:
            return None
        members, _ = _members(content, root["call"][0])
        if set(members) != {"tool", "arguments"}:
            return None
        name, _ = _READER.raw_decode(content, members["tool"][0])
    except (ValueError, RecursionError):
        return None
    start, end = members["arguments"]
    return ProposedCall(name=name, arguments=content[start:end]) if isinstance(name, str) else None


def _space(content: str, at: int) -> int:
    found = _SPACE.match(content, at)
    assert found is not None
    return found.end()


def _members(content: str, at: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each value of the JSON object at `at` begins and ends, and where the object ends; ValueError if none."""
    members: dict[str, tuple[int, int]] = {}
    mark = "{"
    while content[at : at + 1] == mark:
        key_at = _space(content, at + 1)
        key, key_end = _READER.raw_decode(content, key_at)
        colon = _space(content, key_end)
        if not isinstance(key, str) or key in members or content[colon : colon + 1] != ":":
            raise ValueError("no member")
        start = _space(content, colon + 1)
        _, end = _READER.raw_decode(content, start)
        members[key] = (start, end)
        at, mark = _space(content, end), ","
    if not members or content[at : at + 1] != "}":
        raise ValueError("no object")
    return members, at + 1
