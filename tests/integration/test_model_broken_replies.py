"""Fifty ways in which a model's reply can be broken, each in both wire forms: one typed outcome, nothing carried out.

The tool that is called, `keep_note`, writes; what is broken is never mended into a call of it.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import openai_server as say
from tests.hands import change
from tests.harness import fleet
from twelvefold import Budget, Done, Task, Text
from twelvefold.events import Event, Failed, ModelAsked, Rejected
from twelvefold.tool import Tool
from workers.model import OpenAIModel
from workers.profiles import PROFILES

GOOD = '{"text": "milk"}'
Kinds = dict[str, tuple[say.Answer, str, str]]
"""By name: the answer, and what it comes to with tool calls and with the schema."""


def keep(arguments: str, **more: Any) -> say.Answer:
    """A call of the tool that writes, with its arguments as text."""
    return say.tool_call("keep_note", arguments, **more)


def body(value: Any) -> say.Answer:
    """A body of 200 that is no answer."""
    return say.Answer(body=value if isinstance(value, bytes) else json.dumps(value).encode())


def choice(**message: Any) -> say.Answer:
    """A reply with just this message."""
    return body({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]})


BROKEN: Kinds = {
    # no call at all
    "prose": (say.content("Sure, I will keep it."), "prose", "prose"),
    "empty content": (say.content(""), "empty", "empty"),
    "null content": (say.Answer(), "empty", "empty"),
    "blank content": (say.content(" \n\t "), "empty", "empty"),
    "content as a list of parts": (choice(content=[{"type": "text", "text": GOOD}]), "empty", "empty"),
    "an apology in the place of JSON": (say.content("I cannot do that, Dave."), "prose", "prose"),
    "a call in prose": (say.content(f"keep_note({GOOD})"), "prose", "prose"),
    "a call in tags": (say.content(f"<tool_call>keep_note {GOOD}</tool_call>"), "prose", "prose"),
    # the endpoint said that it is not whole, or not meant
    "cut in the arguments": (say.cut_arguments("keep_note"), "cut_off", "cut_off"),
    "cut, and yet it parses": (keep(GOOD, finish="length"), "cut_off", "cut_off"),
    "cut before the first letter": (say.Answer(text="", finish="length"), "cut_off", "cut_off"),
    "filtered, with a call": (keep(GOOD, finish="content_filter"), "refusal", "refusal"),
    "refused": (say.refusal("No."), "refusal", "refusal"),
    "refused, with a call": (keep(GOOD, refusal="No."), "refusal", "refusal"),
    # the name
    "unknown tool": (say.tool_call("drop_table", GOOD), "unknown_tool", "unknown_tool"),
    "name in another case": (say.tool_call("Keep_Note", GOOD), "unknown_tool", "unknown_tool"),
    "name with a space": (say.tool_call("keep_note ", GOOD), "unknown_tool", "unknown_tool"),
    "name with a prefix": (say.tool_call("functions.keep_note", GOOD), "unknown_tool", "unknown_tool"),
    "empty name": (say.tool_call("", GOOD), "unknown_tool", "unknown_tool"),
    "the wrapper for several": (
        say.tool_call("multi_tool_use.parallel", '{"tool_uses": [{"recipient_name": "keep_note", "parameters": {}}]}'),
        "unknown_tool", "unknown_tool",
    ),
    # arguments that are no JSON
    "prose around the arguments": (say.prose_arguments("keep_note", {"text": "milk"}), "arguments", "prose"),
    "no arguments": (keep(""), "arguments", "prose"),
    "trailing comma": (keep('{"text": "milk",}'), "arguments", "prose"),
    "single quotes": (keep("{'text': 'milk'}"), "arguments", "prose"),
    "unquoted key": (keep('{text: "milk"}'), "arguments", "prose"),
    "comment": (keep('{"text": "milk" /* fresh */}'), "arguments", "prose"),
    "Python's None": (keep('{"text": None}'), "arguments", "prose"),
    "brace missing": (keep('{"text": "milk"'), "arguments", "prose"),
    "brace too many": (keep('{"text": "milk"}}'), "arguments", "prose"),
    "two objects": (keep(GOOD + GOOD), "arguments", "prose"),
    "code fence": (keep(f"```json\n{GOOD}\n```"), "arguments", "prose"),
    "raw line end in a string": (keep('{"text": "mi\nlk"}'), "arguments", "prose"),
    "bad escape": (keep('{"text": "mi\\qlk"}'), "arguments", "prose"),
    "nested too deep": (keep('{"text": ' + "[" * 5_000 + "]" * 5_000 + "}"), "arguments", "prose"),
    # JSON that is not what was asked for
    "duplicate keys": (keep('{"text": "milk", "text": "poison"}'), "arguments", "arguments"),
    "a list": (keep("[1]"), "arguments", "arguments"),
    "a string": (keep('"milk"'), "arguments", "arguments"),
    "null": (keep("null"), "arguments", "arguments"),
    "a number": (keep("7"), "arguments", "arguments"),
    "NaN": (keep('{"text": NaN}'), "arguments", "arguments"),
    "a number beyond all": (keep('{"text": 1e999}'), "arguments", "arguments"),
    "wrong type": (keep('{"text": 7}'), "arguments", "arguments"),
    "argument missing": (keep("{}"), "arguments", "arguments"),
    "argument too many": (keep('{"text": "milk", "urgent": true}'), "arguments", "arguments"),
    "value too long": (keep(json.dumps({"text": "x" * 5_001})), "arguments", "arguments"),
    # several
    "two writes": (say.tool_calls(("keep_note", GOOD), ("keep_note", GOOD)), "several", "prose"),
    "a write and an unknown one": (say.tool_calls(("keep_note", GOOD), ("nosuch", "{}")), "unknown_tool", "prose"),
    # no reply
    "no choices": (say.no_choices(), "no_choices", "no_choices"),
    "choices null": (body({"choices": None}), "no_choices", "no_choices"),
    "choices an object": (body({"choices": {}}), "no_choices", "no_choices"),
    "message null": (body({"choices": [{"message": None}]}), "no_choices", "no_choices"),
    "an error with 200": (body({"error": {"message": "busy", "code": "busy"}}), "no_choices", "no_choices"),
    "a web page": (say.html(), "malformed", "malformed"),
    "half a body": (body(b'{"choices": [{"mess'), "malformed", "malformed"),
    "no UTF-8": (body(b'{"choices": "\xff"}'), "malformed", "malformed"),
    "an empty body": (body(b""), "malformed", "malformed"),
    "a list for a body": (body([]), "malformed", "malformed"),
}  # fmt: skip
FORMS = {"tools": PROFILES["openai"], "json_schema": PROFILES["llama.cpp"]}


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


def came(events: list[Event]) -> str:
    """What a reply came to."""
    match events[-1]:
        case Rejected(kind=kind) | Failed(type=kind):
            return kind
    return " ".join(type(event).__name__ for event in events)


@pytest.mark.parametrize("form", FORMS)
def test_every_broken_reply_has_its_outcome_and_nothing_is_carried_out(fresh_database: Any, form: str) -> None:
    assert len(BROKEN) >= 40 and len({name.lower() for name in BROKEN}) == len(BROKEN)
    with (
        fleet(fresh_database, done) as f, say.FakeOpenAI() as server,
        closing(OpenAIModel("sk-test", server.base_url, FORMS[form])) as model,
    ):  # fmt: skip
        f.run = replace(f.run, model=model, scripted=False, profile=FORMS[form])
        change(f, "notes", budget=Budget(decisions=50))
        wrong: dict[str, str] = {}
        for name, (answer, *expected) in BROKEN.items():
            server.script(answer)
            task = f.open()
            f.step(task)
            if (became := came(f.events(task))) != expected[list(FORMS).index(form)]:
                wrong[name] = became
            asked = [event for event in f.events(task) if isinstance(event, ModelAsked)]
            assert all(json.loads(event.raw) is not None for event in asked), "the raw reply is kept"
        assert wrong == {}
        assert f.one("SELECT count(*) FROM notes") == 0, "nothing broken was mended into a write"
        assert f.one("SELECT count(*) FROM agent_events WHERE type IN ('Decided', 'Returned', 'Quarantined')") == 0
