"""A client that was written for the workshop's thread server works here, with base URL and headers alone changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import uvicorn
from starlette.applications import Starlette

from console import api as control
from console.edge import edge
from tests.callers import stepping
from tests.hands import change, until
from tests.harness import Fleet, fleet
from twelvefold import AskHuman, Ctx, Done, Read, Task, Text, Verdict, ask, on
from twelvefold.tool import Tool
from workers.store import tokens

from .workshop import Mismatch, NotFound, Workshop


class Divide(Read[int]):
    """Divide two numbers. Use when a quotient is asked for; a person approves it."""

    a: int
    b: int

    def approval(self, task: Task) -> Verdict:
        """Somebody looks at it first."""
        return ask("#desk", "it may be a division by zero", risk="low")

    def run(self, ctx: Ctx) -> int:
        """The quotient."""
        return self.a // self.b


def calculator(task: Task) -> Tool[Any]:
    """Ask what is unclear, divide what is clear, and say what came of it."""
    if task.event.text == "help me" and not task.did(AskHuman):
        return AskHuman(reason="What shall I divide?", target="#desk")
    if task.denied(Divide):
        return Done(outcome=Text(text="Then not."))
    quotient = task.last(Divide)
    return Divide(a=8, b=2) if quotient is None else Done(outcome=Text(text=f"It is {quotient}."))


@contextmanager
def server(f: Fleet) -> Iterator[Workshop]:
    """The API in a real server that answers as the workshop's does, when the turn is over."""
    f.settings = f.settings.model_copy(update={"api_wait": 30.0})
    change(f, "notes", tools=[Divide, AskHuman], people=["#desk"], triggers=[on.api()])
    held = edge(f.settings)
    object.__setattr__(held, "agents", f.run.registry)
    object.__setattr__(held, "intake", f.intake)
    _, secret = tokens.add(held.db, tenant="t1", principal="ann@example.org", roles=["requester", "approver"])
    app = Starlette(routes=control.routes(held))
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        until(lambda: running.started, "serving")
        port = running.servers[0].sockets[0].getsockname()[1]
        with stepping(f):
            yield Workshop(f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {secret}"})
    finally:
        running.should_exit = True
        thread.join(20)
        held.close()


@pytest.fixture
def workshop(fresh_database: Any) -> Iterator[Workshop]:
    """The client, and a calculator behind it."""
    with fleet(fresh_database, calculator) as f, server(f) as found:
        yield found


def test_a_conversation_of_the_workshop_comes_to_its_end(workshop: Workshop) -> None:
    said: list[str] = []

    def person(line: str) -> str:
        said.append(line)
        return "8 by 2" if line.endswith("divide?") else "yes"

    assert workshop.talk("help me", person) == "It is 4."
    assert said == ["What shall I divide?", "divide 8 2?"]


def test_a_denial_with_and_without_a_comment_is_taken(workshop: Workshop) -> None:
    assert workshop.talk("divide 8 by 2", lambda line: "wrong numbers") == "Then not."
    thread = workshop.launch("divide 8 by 2")
    url = thread["events"][-1]["data"]["response_url"]
    done = workshop.approve(url, False)["events"][-1]["data"]
    assert (done["intent"], done["message"]) == ("done_for_now", "Then not.")


def test_a_thread_that_is_done_for_now_takes_more(workshop: Workshop) -> None:
    thread = workshop.launch("divide 8 by 2")
    url = thread["events"][-1]["data"]["response_url"]
    assert workshop.approve(url, True)["events"][-1]["data"]["intent"] == "done_for_now"
    again = workshop.respond(url, "and once more")
    assert again["events"][-1]["data"]["intent"] == "divide"
    shown = workshop.thread(thread["thread_id"])
    assert shown["thread_id"] == thread["thread_id"] and len(shown["events"]) > len(again["events"])


def test_the_wrong_kind_of_response_tells_what_is_awaited_and_changes_nothing(workshop: Workshop) -> None:
    asks = workshop.launch("help me")
    with pytest.raises(Mismatch) as told:
        workshop.approve(asks["events"][-1]["data"]["response_url"], True)
    assert (told.value.response, told.value.approval) == (True, False)
    waits = workshop.launch("divide 8 by 2")
    with pytest.raises(Mismatch) as told:
        workshop.respond(waits["events"][-1]["data"]["response_url"], "yes")
    assert (told.value.response, told.value.approval) == (False, True)
    shown = workshop.thread(waits["thread_id"])["events"]
    assert [e["seq"] for e in shown] == [e["seq"] for e in waits["events"]]


def test_a_thread_that_is_not_there_is_not_found(workshop: Workshop) -> None:
    for unknown in (str(uuid4()), "no-id"):
        with pytest.raises(NotFound):
            workshop.thread(unknown)
        with pytest.raises(NotFound):
            workshop.respond(f"/thread/{unknown}/response", "hello")
