"""The model port through the real SDK and a real socket: every reply a server may give has one typed outcome."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from unittest.mock import ANY

import pytest

from tests.fakes import openai_server as say
from tests.fakes.loopback import until_true
from twelvefold.errors import Fatal, Transport
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from workers.model import LONGEST_RETRY_AFTER, OpenAIModel
from workers.profiles import OPENAI, PROFILES

KEY = "sk-test-very-secret-0123456789"
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
REQUEST = ModelRequest(
    agent="greeter",
    model="gpt-fake-2026-11-01",
    system="You greet. SYSTEM-SECRET",
    user="Say hello to PROMPT-SECRET",
    menu=(
        {"name": "answer", "description": "Answer with a number.", "parameters": PARAMETERS},
        {"name": "done", "description": "Finish.", "parameters": PARAMETERS},
    ),
    temperature=0.0,
    seed=42,
    max_tokens=300,
    timeout=10.0,
)


@pytest.fixture
def fake() -> Iterator[say.FakeOpenAI]:
    with say.FakeOpenAI() as server:
        yield server


SCHEMA = OPENAI.model_copy(update={"form": "json_schema"})


@pytest.fixture(params=[OPENAI, SCHEMA], ids=["tools", "json_schema"])
def model(request: pytest.FixtureRequest, fake: say.FakeOpenAI) -> Iterator[OpenAIModel]:
    """One model per wire form; a test that takes it runs in both."""
    made = OpenAIModel(KEY, fake.base_url, request.param)
    yield made
    made.close()


@pytest.fixture
def tools(fake: say.FakeOpenAI) -> Iterator[OpenAIModel]:
    made = OpenAIModel(KEY, fake.base_url)
    yield made
    made.close()


@pytest.fixture
def schema(fake: say.FakeOpenAI) -> Iterator[OpenAIModel]:
    made = OpenAIModel(KEY, fake.base_url, SCHEMA)
    yield made
    made.close()


def transport(model: OpenAIModel, request: ModelRequest = REQUEST) -> Transport:
    with pytest.raises(Transport) as caught:
        model.ask(request)
    return caught.value


def fatal(model: OpenAIModel, request: ModelRequest = REQUEST) -> Fatal:
    with pytest.raises(Fatal) as caught:
        model.ask(request)
    return caught.value


def only(reply: ModelReply) -> ProposedCall:
    (call,) = reply.calls
    return call


# What is asked


def test_the_question_in_tool_form(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}))
    tools.ask(REQUEST)
    (seen,) = fake.requests
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "gpt-fake-2026-11-01",
        "messages": [{"role": "system", "content": REQUEST.system}, {"role": "user", "content": REQUEST.user}],
        "temperature": 0.0,
        "seed": 42,
        "max_completion_tokens": 300,
        "tools": [{"type": "function", "function": {**tool, "strict": True}} for tool in REQUEST.menu],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


def test_the_question_in_schema_form(fake: say.FakeOpenAI, schema: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}))
    schema.ask(REQUEST)
    body = fake.requests[0].body
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    root = form["schema"]
    assert (root["type"], root["required"], root["additionalProperties"]) == ("object", ["call"], False)
    variants = root["properties"]["call"]["anyOf"]
    assert [list(variant["properties"]) for variant in variants] == [["tool", "arguments"]] * 2
    assert [variant["properties"]["tool"]["const"] for variant in variants] == ["answer", "done"]
    assert variants[0]["properties"]["arguments"] == PARAMETERS
    assert variants[0]["description"] == "Answer with a number."


LACKS = {
    "openai": set(),
    "vllm": {"max_completion_tokens"},
    "llama.cpp": {"tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens"},
    "ollama": {"tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens"},
}


@pytest.mark.parametrize("name", PROFILES)
def test_each_kind_of_endpoint_is_sent_what_it_knows_and_decides(fake: say.FakeOpenAI, name: str) -> None:
    fake.script(say.tool_call("answer", {"a": 1}))
    with closing(OpenAIModel(KEY, fake.base_url, PROFILES[name])) as model:
        assert only(model.ask(REQUEST)) == ProposedCall("answer", '{"a": 1}', ANY)
    body = fake.requests[0].body
    assert not LACKS[name] & set(body)
    assert {"model", "messages", "temperature", "seed"} <= set(body)
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 300
    assert (body.get("tool_choice") == "required") is ("tools" in body)


def test_definitions_of_two_tools_do_not_collide_in_schema_form(fake: say.FakeOpenAI, schema: OpenAIModel) -> None:
    def tool(name: str, kind: str) -> dict[str, Any]:
        parameters = {
            "type": "object",
            "properties": {"n": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"type": kind}},
        }
        return {"name": name, "description": "", "parameters": parameters}

    menu = (tool("one", "string"), tool("two", "integer"))
    fake.script(say.tool_call("one", {"n": ""}))
    schema.ask(replace(REQUEST, menu=menu))
    root = fake.requests[0].body["response_format"]["json_schema"]["schema"]
    assert root["$defs"] == {"one__Node": {"type": "string"}, "two__Node": {"type": "integer"}}
    arguments = [variant["properties"]["arguments"] for variant in root["properties"]["call"]["anyOf"]]
    assert [a["properties"]["n"]["$ref"] for a in arguments] == ["#/$defs/one__Node", "#/$defs/two__Node"]
    assert all("$defs" in tool["parameters"] for tool in menu), "the menu belongs to the caller"


def test_an_empty_menu_asks_for_plain_text(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.content("A summary."))
    assert model.ask(replace(REQUEST, menu=())).text == "A summary."
    assert not {"tools", "tool_choice", "response_format"} & set(fake.requests[0].body)


# What is answered, and how it is understood


def test_one_tool_call(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}))
    reply = model.ask(REQUEST)
    assert (only(reply).name, only(reply).arguments) == ("answer", '{"a": 1}')
    assert reply.text is None
    assert reply.request_id == "req_1"
    assert (reply.model, reply.fingerprint) == ("gpt-fake-2026-11-01", "fp_fake")
    assert (reply.tokens_in, reply.tokens_out) == (11, 7)
    assert 0 <= reply.duration_ms < 10_000


def test_the_provider_id_of_a_tool_call_is_kept(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}))
    assert only(tools.ask(REQUEST)).provider_id == "call_1"


def test_the_raw_reply_is_kept_byte_for_byte(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    body = '{"choices": [ {"message": {"content": "h\u00e9, \\ud83d\\ude00"}, "finish_reason": "stop"}],\n\n "x": 1.50}'
    fake.script(say.Answer(body=body.encode()))
    reply = model.ask(REQUEST)
    assert reply.raw == body
    assert reply.text == "h\u00e9, \U0001f600"


def test_content_only(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.content("I would rather talk."))
    reply = model.ask(REQUEST)
    assert (reply.calls, reply.text, reply.finish) == ((), "I would rather talk.", "stop")


def test_two_tool_calls(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.tool_calls(("answer", {"a": 1}), ("done", {"a": 2})))
    assert [(c.name, c.arguments) for c in tools.ask(REQUEST).calls] == [("answer", '{"a": 1}'), ("done", '{"a": 2}')]


def test_two_calls_in_schema_form_are_text(fake: say.FakeOpenAI, schema: OpenAIModel) -> None:
    fake.script(say.tool_calls(("answer", {"a": 1}), ("done", {"a": 2})))
    reply = schema.ask(REQUEST)
    assert reply.calls == ()
    assert reply.text is not None
    assert reply.text.count('"call"') == 2


def test_cut_arguments(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.cut_arguments("answer"))
    reply = tools.ask(REQUEST)
    assert (only(reply).arguments, reply.finish) == ('{"a": 1', "length")


def test_cut_schema_content_is_text(fake: say.FakeOpenAI, schema: OpenAIModel) -> None:
    fake.script(say.content('{"call": {"tool": "answer", "arguments": {"a": 1', finish="length"))
    reply = schema.ask(REQUEST)
    assert (reply.calls, reply.finish) == ((), "length")
    assert reply.text == '{"call": {"tool": "answer", "arguments": {"a": 1'


def test_arguments_with_prose(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.prose_arguments("answer", {"a": 1}))
    assert only(tools.ask(REQUEST)).arguments == 'Sure! {"a": 1} Anything else?'


@pytest.mark.parametrize(
    "content",
    [
        'Sure! {"call": {"tool": "answer", "arguments": {"a": 1}}}',
        '{"call": {"tool": "answer", "arguments": {"a": 1}}} Anything else?',
        '```json\n{"call": {"tool": "answer", "arguments": {"a": 1}}}\n```',
        '[{"call": {"tool": "answer", "arguments": {"a": 1}}}]',
        '{"call": {"tool": "answer", "arguments": {"a": 1}}, "call": {"tool": "done", "arguments": {"a": 1}}}',
        '{"call": {"tool": "answer", "arguments": {"a": 1}}, "note": ""}',
        '{"call": {"tool": 7, "arguments": {"a": 1}}}',
        '{"call": {"tool": "answer"}}',
        '{"call": "answer"}',
        "{}",
        "",
        "[" * 100_000,
    ],
)
def test_other_content_in_schema_form_stays_text(fake: say.FakeOpenAI, schema: OpenAIModel, content: str) -> None:
    fake.script(say.content(content))
    reply = schema.ask(REQUEST)
    assert (reply.calls, reply.text) == ((), content)


def test_duplicate_keys_reach_the_core_as_written(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.duplicate_keys("answer"))
    assert only(model.ask(REQUEST)).arguments == '{"a": 1, "a": 2}'


def test_arguments_in_schema_form_keep_their_spelling(fake: say.FakeOpenAI, schema: OpenAIModel) -> None:
    fake.script(say.content(' {"call" :\n{ "arguments": {"a": 1.10, "b":"\\u00e9"} ,"tool":"answer"} }\n'))
    assert only(schema.ask(REQUEST)) == ProposedCall("answer", '{"a": 1.10, "b":"\\u00e9"}')


def test_an_unknown_tool_is_passed_on(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.tool_call("no_such_tool", {"a": 1}))
    assert only(model.ask(REQUEST)).name == "no_such_tool"


def test_arguments_that_come_as_an_object(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    call = {"function": {"name": "answer", "arguments": {"a": 1}}}
    fake.script(say.Answer(body=json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()))
    assert only(tools.ask(REQUEST)) == ProposedCall("answer", '{"a": 1}')


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_finish_reason(fake: say.FakeOpenAI, model: OpenAIModel, finish: str) -> None:
    fake.script(say.content("", finish=finish))
    assert model.ask(REQUEST).finish == finish


def test_refusal(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.refusal("I cannot do that."))
    reply = model.ask(REQUEST)
    assert (reply.refusal, reply.calls, reply.text) == ("I cannot do that.", (), None)


def test_usage_missing_counts_nothing(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}, usage=None))
    reply = model.ask(REQUEST)
    assert (reply.tokens_in, reply.tokens_out) == (0, 0)


def test_a_changing_fingerprint_is_reported(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.in_turn(*(say.tool_call("answer", {"a": 1}, fingerprint=f) for f in ("fp_1", "fp_2", None))))
    assert [model.ask(REQUEST).fingerprint for _ in range(3)] == ["fp_1", "fp_2", None]


@pytest.mark.parametrize(
    "body", [{"choices": [None]}, {"choices": "x"}, {"choices": [{"message": None}]}, {"error": {}}]
)
def test_nonsense_where_the_choice_belongs(fake: say.FakeOpenAI, tools: OpenAIModel, body: dict[str, Any]) -> None:
    fake.script(say.Answer(body=json.dumps(body).encode()))
    assert transport(tools).kind == "no_choices"


def test_nonsense_inside_a_choice_is_survived(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    message = {"content": ["x"], "refusal": 7, "tool_calls": [None, {"function": None}, {"function": {"name": 7}}]}
    body = {"choices": [{"message": message}], "usage": {"prompt_tokens": "9", "completion_tokens": -1}, "model": None}
    fake.script(say.Answer(body=json.dumps(body).encode()))
    reply = tools.ask(REQUEST)
    assert reply.calls == (ProposedCall("", ""), ProposedCall("", ""))
    assert (reply.text, reply.refusal, reply.tokens_in, reply.tokens_out) == (None, None, 0, 0)


# What goes wrong


def test_empty_choices(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.no_choices())
    assert transport(model).kind == "no_choices"


@pytest.mark.parametrize("body", [b"", b"[1, 2]", b'{"choices": ', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_answer(fake: say.FakeOpenAI, tools: OpenAIModel, body: bytes) -> None:
    fake.script(say.Answer(body=body))
    assert transport(tools).kind == "malformed"


def test_200_with_html(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.html())
    assert transport(model).kind == "malformed"


def test_429_then_503_then_200_are_three_calls_of_ours(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.script(say.in_turn(say.rate_limited(1), say.failing(503), say.tool_call("answer", {"a": 1})))
    first = transport(model)
    assert (first.kind, first.retry_after) == ("rate_limit", 1.0)
    second = transport(model)
    assert (second.kind, second.retry_after) == ("server", None)
    assert only(model.ask(REQUEST)).name == "answer"
    assert [seen.headers["x-stainless-retry-count"] for seen in fake.requests] == ["0", "0", "0"]


def test_the_sdk_itself_never_retries(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    for answer in (say.rate_limited(0), say.failing(500), say.error(409, None), say.error(408, None)):
        before = len(fake.requests)
        fake.script(answer)
        transport(model)
        assert len(fake.requests) == before + 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("300", 300.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("999999999999", LONGEST_RETRY_AFTER),
        ("-3", None),
        ("nan", None),
        ("soon", None),
        ("Wed, 99 Nov 2026 00:00:00 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
    ],
)
def test_429_with_retry_after(fake: say.FakeOpenAI, tools: OpenAIModel, header: str, seconds: float | None) -> None:
    fake.script(say.rate_limited(header))
    error = transport(tools)
    assert (error.kind, error.retry_after) == ("rate_limit", seconds)


def test_retry_after_as_a_date_in_the_future(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.rate_limited(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)))
    assert transport(tools).retry_after == pytest.approx(90, abs=5)


def test_retry_after_in_milliseconds_is_finer(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.error(429, None, headers={"Retry-After": "1", "retry-after-ms": "250"}))
    assert transport(tools).retry_after == 0.25


def test_503_with_retry_after(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.error(503, None, headers={"Retry-After": "7"}))
    error = transport(tools)
    assert (error.kind, error.retry_after) == ("server", 7.0)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (say.context_exceeded(), "context"),
        (say.error(400, None, "This model's maximum context length is 4096 tokens."), "context"),
        (say.Answer(400, body=b'{"error": {"code": 400, "type": "exceed_context_size_error"}}'), "context"),
        (say.unauthorized(), "auth"),
        (say.error(403, "unsupported_country"), "auth"),
        (say.quota_spent(), "quota"),
        (say.error(402, None), "quota"),
        (say.unknown_model(), "model"),
        (say.error(400, "invalid_value"), "request"),
        (say.error(422, None), "request"),
        (say.Answer(400, body=b"<html>no</html>"), "request"),
        (say.Answer(307, body=b"", headers={"Location": "http://127.0.0.1:9/"}), "request"),
    ],
)
def test_what_no_waiting_cures(fake: say.FakeOpenAI, model: OpenAIModel, answer: say.Answer, code: str) -> None:
    fake.script(answer)
    assert fatal(model).code == code
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(408, "timeout"), (409, "conflict"), (500, "server"), (502, "server"), (529, "server")]
)
def test_what_waiting_may_cure(fake: say.FakeOpenAI, model: OpenAIModel, status: int, kind: str) -> None:
    fake.script(say.failing(status))
    assert transport(model).kind == kind


@pytest.mark.parametrize("fault", ["reset_before_headers", "reset_after_headers"])
def test_reset(fake: say.FakeOpenAI, model: OpenAIModel, fault: say.Fault) -> None:
    fake.script(say.Answer(fault=fault))
    assert transport(model).kind == "reset"
    fake.script(say.tool_call("answer", {"a": 1}))
    assert only(model.ask(REQUEST)).name == "answer", "the client lives on"


@pytest.mark.parametrize("fault", ["slow_headers", "slow_body"])
def test_b73_slow_loris_ends_at_the_deadline_of_the_whole_call(
    fake: say.FakeOpenAI, model: OpenAIModel, fault: say.Fault
) -> None:
    """Every byte comes well within the read timeout; all of them would take ten seconds."""
    fake.script(say.Answer(text="x" * 300, fault=fault))
    began = time.monotonic()
    assert transport(model, replace(REQUEST, timeout=0.4)).kind == "timeout"
    assert 0.35 <= time.monotonic() - began < 4.0


def test_no_answer_in_time(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    fake.hold()
    assert transport(model, replace(REQUEST, timeout=0.2)).kind == "timeout"


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        model = OpenAIModel(KEY, f"http://127.0.0.1:{bound.getsockname()[1]}/v1")
        assert transport(model).kind == "connect"
        model.close()


@pytest.mark.parametrize("key", ["", "sk-\n", "sk key", "schl\u00fcssel"])
def test_a_key_that_no_header_holds_is_refused_at_once(key: str) -> None:
    with pytest.raises(Fatal) as caught:
        OpenAIModel(key, "http://127.0.0.1:9/v1")
    assert caught.value.code == "auth"
    assert not key or key not in str(caught.value)


def test_text_that_is_not_unicode_is_the_requests_fault(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    assert fatal(tools, replace(REQUEST, user="\ud800")).code == "request"
    assert fake.requests == []


# What everybody relies on


def failures(fake: say.FakeOpenAI, model: OpenAIModel, headers: dict[str, str]) -> list[Exception]:
    """What comes of a server that echoes key and prompt into every place an error has."""
    secret = f"{KEY} {REQUEST.user} {REQUEST.system} REPLY-SECRET"
    answers = [say.error(status, secret, secret, headers=headers) for status in (400, 401, 404, 409, 422, 429, 500)]
    answers += [say.Answer(body=secret.encode(), headers=headers), say.Answer(body=b"{}", headers=headers)]
    answers += [say.Answer(text="REPLY-SECRET", fault="reset_after_headers")]
    caught: list[Exception] = []
    for answer in answers:
        fake.script(answer)
        with pytest.raises((Fatal, Transport)) as failure:
            model.ask(REQUEST)
        caught.append(failure.value)
    return caught


def test_nothing_secret_in_exceptions(fake: say.FakeOpenAI, model: OpenAIModel) -> None:
    for error in failures(fake, model, {"x-request-id": f"req {KEY}"}):
        assert error.__cause__ is None
        assert error.__context__ is None
        for text in (str(error), repr(error), repr(vars(error)), *traceback.format_exception_only(error)):
            assert "SECRET" not in text
            assert KEY not in text


def test_nothing_secret_in_logs_even_at_debug(
    fake: say.FakeOpenAI, model: OpenAIModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    failures(fake, model, {})
    fake.script(say.tool_call("answer", {"a": "REPLY-SECRET"}))
    model.ask(REQUEST)
    assert caplog.records, "the libraries do log"
    for text in [*(record.getMessage() + str(record.exc_info) for record in caplog.records), repr(model)]:
        assert "SECRET" not in text
        assert KEY not in text


def test_an_error_names_status_code_and_request_id(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.quota_spent())
    assert str(fatal(tools)).endswith("(status 429, code insufficient_quota, request req_1)")


def test_fifty_threads_share_one_client(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(lambda question: say.tool_call("answer", {"a": question["seed"]}))
    fake.hold()
    with ThreadPoolExecutor(50) as pool:
        asked = [pool.submit(tools.ask, replace(REQUEST, seed=n)) for n in range(50)]
        with fake.waiting(50):
            assert len(fake.requests) == 50
        replies = [future.result() for future in asked]
        assert [only(reply).arguments for reply in replies] == [f'{{"a": {n}}}' for n in range(50)]
    assert fake.connections == 50
    tools.ask(REQUEST)
    assert fake.connections == 50, "connections are kept and used again"


def test_a_held_question_is_seen_before_it_is_answered(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    """What tests that kill a worker in the middle of a model call build on."""
    fake.script(say.tool_call("answer", {"a": 1}))
    fake.hold()
    replies: list[ModelReply] = []
    thread = threading.Thread(target=lambda: replies.append(tools.ask(REQUEST)))
    thread.start()
    with fake.waiting(1):
        assert len(fake.requests) == 1
        assert replies == []
    thread.join()
    assert len(replies) == 1


def test_a_connection_the_server_dropped_while_idle_costs_no_call(fake: say.FakeOpenAI, tools: OpenAIModel) -> None:
    fake.script(say.tool_call("answer", {"a": 1}, headers={"Connection": "close"}))
    for _ in range(3):
        assert only(tools.ask(REQUEST)).name == "answer"
        until_true(lambda: fake.open_connections == 0)
    assert fake.connections == 3
