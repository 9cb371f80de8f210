"""Which model answers: by role, with others behind it; and replies that are played again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from tests.fakes import openai_server as say
from tests.hands import change, counted
from tests.harness import fleet
from twelvefold import Done, Task, Text
from twelvefold.errors import Transport
from twelvefold.events import Decided, Failed, ModelAsked, Rejected, Stuck
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.tool import Tool
from workers.gateway import Answered, Question, put
from workers.model import OpenAIModel
from workers.recorded import RecordedModel
from workers.step import claim
from workers.store import texts

DONE = ProposedCall("done", '{"outcome": {"text": "x"}}')


def done(task: Task) -> Tool[Any]:
    """Be done."""
    return Done(outcome=Text(text="x"))


def test_the_next_model_of_the_role_answers_where_the_first_does_not_and_the_log_says_so(fresh_database: Any) -> None:
    def answers(request: ModelRequest) -> ModelReply:
        if request.model != "third":
            raise Transport("down", kind="server")
        return ModelReply(calls=(DONE,), model="third-as-served")

    roles: dict[str, Any] = {"decide": ["first", "second", "third"], "summarise": ["small"]}
    with fleet(fresh_database, done, models=roles, price_in=1) as f:
        model = counted(f, answers)
        task = f.open()
        assert f.drain(task) == "done" and model.asked == 3
        (asked,) = [event for event in f.events(task) if isinstance(event, ModelAsked)]
        assert (asked.model, asked.role) == ("third-as-served", "decide")
        assert asked.instead == ("first: server", "second: server")
        assert f.one("SELECT count(*) FROM agent_events WHERE type = 'Failed'") == 0

        # a role of its own, as whoever asks for a summary does
        work = claim(f.open(text="again"), f.run)
        assert work is not None
        counted(f, lambda request: ModelReply(text=f"{request.model} says", model=request.model))
        found = put(work, f.run, Question("summarise", "Sum up.", "<task>\n</task>", (), tokens=9))
        assert isinstance(found, Answered)
        assert (found.reply.text, found.asked.role) == ("small says", "summarise")

        counted(f, lambda request: (_ for _ in ()).throw(Transport("down", kind="connect")))
        other = f.open()
        assert f.step(other) == "waiting"
        failure = f.events(other)[-1]
        assert isinstance(failure, Failed) and (failure.then, failure.attempt) == ("retry", 1), "one failure, not three"


def test_recorded_replies_decide_again_and_what_was_never_asked_is_named(fresh_database: Any) -> None:
    with fleet(fresh_database, done) as f, say.FakeOpenAI() as server:
        server.script(
            say.in_turn(say.tool_call("count_notes", {"topic": "tea"}), say.tool_call(DONE.name, DONE.arguments))
        )
        with closing(OpenAIModel("sk-test", server.base_url)) as model:
            f.run = replace(f.run, model=model, scripted=False)
            first = f.open(text="how many?")
            assert f.drain(first) == "done"
        recorded = RecordedModel(texts.replies(f.run.db, first), f.run.profile)
        assert len(recorded.replies) == 2
        f.run = replace(f.run, model=recorded)
        again = f.open(text="how many?")
        assert f.drain(again) == "done" and len(server.requests) == 2, "nobody was asked"
        calls = [[event.args for event in f.events(task) if isinstance(event, Decided)] for task in (first, again)]
        assert calls[0] == calls[1]

        unknown = f.open(text="how many, then?")
        assert f.drain(unknown) == "waiting"
        failure = f.events(unknown)[-1]
        assert isinstance(failure, Failed) and failure.type == "not_recorded"
        assert "2 are recorded for others" in failure.message


def test_b72_a_time_out_is_asked_again_by_the_step_alone_and_only_after_its_back_off(fresh_database: Any) -> None:
    with fleet(fresh_database, done, model_timeout=0.5) as f, say.FakeOpenAI() as server:
        server.hold()
        with closing(OpenAIModel("sk-test", server.base_url)) as model:
            f.run = replace(f.run, model=model, scripted=False)
            task = f.open()
            work = claim(task, f.run)
            assert work is not None
            question = Question("decide", "s", "u", (), tokens=1)
            failure = put(work, f.run, question)
        assert isinstance(failure, Failed) and (failure.type, failure.then) == ("timeout", "retry")
        assert len(server.requests) == 1, "neither the SDK nor the gateway sent it twice"


def outcome(database: Any, answer: say.Answer) -> list[Any]:
    """The events after one broken reply, then a second one of the kind."""
    with (
        fleet(database, done) as f, say.FakeOpenAI() as server,
        closing(OpenAIModel("sk-test", server.base_url)) as model,
    ):  # fmt: skip
        f.run = replace(f.run, model=model, scripted=False)
        change(f, "notes", on_stuck="operator")
        server.script(answer)
        task = f.open()
        f.drain(task)
        assert f.one("SELECT count(*) FROM notes") == 0
        return f.events(task)


def rejected(events: list[Any]) -> list[str]:
    """The kinds of the rejections."""
    return [event.kind for event in events if isinstance(event, Rejected)]


def test_b80_a_call_that_was_cut_by_length_and_parses_is_not_carried_out(fresh_database: Any) -> None:
    events = outcome(fresh_database, say.tool_call("keep_note", {"text": "half a list"}, finish="length"))
    assert rejected(events) == ["cut_off", "cut_off"] and isinstance(events[-1], Stuck)


def test_b81_a_reply_whose_budget_went_into_thinking_is_no_success(fresh_database: Any) -> None:
    events = outcome(fresh_database, say.Answer(text="", finish="length"))
    assert rejected(events) == ["cut_off", "cut_off"] and isinstance(events[-1], Stuck)


def test_b82_a_wrapper_of_parallel_calls_is_an_unknown_tool_and_the_valid_names_are_told(fresh_database: Any) -> None:
    inner = [{"recipient_name": "functions.keep_note", "parameters": {"text": "x"}}] * 2
    events = outcome(fresh_database, say.tool_call("multi_tool_use.parallel", {"tool_uses": inner}))
    assert rejected(events) == ["unknown_tool", "unknown_tool"]
    (first, _) = (event for event in events if isinstance(event, Rejected))
    assert "keep_note" in first.text and "count_notes" in first.text


def test_b84_two_calls_with_one_id_are_two_calls_and_none_of_them_runs(fresh_database: Any) -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "keep_note", "arguments": f'{{"text": "{text}"}}'}}
        for text in ("pay 10", "pay 9000")
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    events = outcome(fresh_database, say.Answer(body=say.written({"choices": [{"message": message}], "model": "m"})))
    assert rejected(events) == ["several", "several"]


def test_b85_a_reply_of_an_odd_shape_is_tried_again_as_a_failure_of_the_endpoint(fresh_database: Any) -> None:
    shapes: list[Any] = [{"choices": []}, {"choices": [{"message": None}]}, []]
    for shape in shapes:
        (*_, failure) = outcome_of_one(fresh_database, shape)
        assert isinstance(failure, Failed) and failure.then == "retry" and failure.type in ("no_choices", "malformed")


def outcome_of_one(database: Any, shape: Any) -> list[Any]:
    """The events after one reply of this shape."""
    with say.FakeOpenAI() as server, closing(OpenAIModel("sk-test", server.base_url)) as model:
        server.script(say.Answer(body=say.written(shape)))
        with fleet(database, done) as f:
            f.run = replace(f.run, model=model, scripted=False)
            task = f.open()
            f.step(task)
            return f.events(task)


def test_b86_a_refusal_is_kept_with_its_words_and_does_not_go_on_for_ever(fresh_database: Any) -> None:
    events = outcome(fresh_database, say.refusal("I must not."))
    assert rejected(events) == ["refusal", "refusal"] and isinstance(events[-1], Stuck)
    assert any("I must not." in event.text for event in events if isinstance(event, Rejected))
