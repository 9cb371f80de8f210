"""A wrong declaration fails when it is written, and the message says how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from types import new_class
from typing import Any

import pytest
from pydantic import BaseModel, create_model

import twelvefold
from twelvefold import Agent, Budget, Ctx, DeclarationError, Effect, Read, Write, on, to
from twelvefold.tool import Tool

pytestmark = pytest.mark.filterwarnings("ignore:Field name .* shadows an attribute:UserWarning")


class Look(Read[int]):
    """Look. Use before acting."""

    def run(self, ctx: Ctx) -> int:
        """One."""
        return 1


class Pay(Effect[None], timeout=5):
    """Pay. Use once."""

    def run(self, ctx: Ctx) -> None:
        """Pay."""


def no_docstring() -> Any:
    class Bare(Read[int]):
        def run(self, ctx: Ctx) -> int:
            return 1


def no_result_type() -> Any:
    class Bare(Read):  # type: ignore[type-arg]
        """Look. Use before."""

        def run(self, ctx: Ctx) -> int:
            return 1


def a_read_without_run() -> Any:
    class Bare(Read[int]):
        """Look. Use before."""


def a_write_without_write() -> Any:
    class Bare(Write[int]):
        """Keep. Use after."""


def a_read_that_writes() -> Any:
    class Bare(Look):
        """Look. Use before."""

        def write(self, db: Any) -> int:
            return 1


def a_write_that_runs() -> Any:
    class Bare(Write[int]):
        """Keep. Use after."""

        def write(self, db: Any) -> int:
            return 1

        def run(self, ctx: Ctx) -> int:
            return 1


def an_effect_that_writes() -> Any:
    class Bare(Pay):
        """Pay. Use once."""

        def write(self, db: Any) -> None:
            return None


def an_async_run() -> Any:
    class Bare(Read[int]):
        """Look. Use before."""

        async def run(self, ctx: Ctx) -> int:
            return 1


def an_argument_that_hides_a_member() -> Any:
    class Bare(Pay):
        """Pay. Use once."""

        key: str  # type: ignore[assignment]


def destructive_without_dry_run() -> Any:
    class Drop(Pay, needs={twelvefold.DESTRUCTIVE}):
        """Drop. Use never."""


def needs_as_text() -> Any:
    class Drop(Pay, needs=twelvefold.DESTRUCTIVE):
        """Drop. Use never."""


def was_as_text() -> Any:
    class Charge(Pay, was="pay"):
        """Pay. Use once."""


def execute() -> Any:
    class Shell(Pay, needs={"execute"}):
        """Run. Use never."""


def a_read_with_doubt() -> Any:
    class Bare(Look, doubt="find"):
        """Look. Use before."""


def an_unknown_doubt() -> Any:
    class Bare(Pay, doubt="hope"):
        """Pay. Use once."""


def find_without_find() -> Any:
    class Bare(Pay, doubt="find"):
        """Pay. Use once."""


def no_time() -> Any:
    class Bare(Pay, timeout=0):
        """Pay. Use once."""


def a_misspelt_header() -> Any:
    class Bare(Pay, time_out=3):
        """Pay. Use once."""


TOOLS = [
    (no_docstring, "needs a docstring"),
    (no_result_type, "say what the tool gives back"),
    (a_read_without_run, "read tools need run()"),
    (a_write_without_write, "write tools need write()"),
    (a_read_that_writes, "read tools have no write()"),
    (a_write_that_runs, "write tools have no run()"),
    (an_effect_that_writes, "effect tools have no write()"),
    (an_async_run, "tools are plain functions"),
    (an_argument_that_hides_a_member, "hides key()"),
    (destructive_without_dry_run, "needs dry_run(ctx)"),
    (needs_as_text, "needs= is a set"),
    (was_as_text, "was= a tuple"),
    (execute, "runs no code that a model wrote"),
    (a_read_with_doubt, "only an Effect has it"),
    (an_unknown_doubt, "doubt= is 'ask', 'find' or 'same_key'"),
    (find_without_find, "needs find(ctx)"),
    (no_time, "seconds, more than zero"),
    (a_misspelt_header, "time_out= is no word of a tool's header"),
]


@pytest.mark.parametrize(("declare", "words"), TOOLS, ids=[declare.__name__ for declare, _ in TOOLS])
def test_a_wrong_tool_is_refused_with_a_message_that_mends_it(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()
    assert words in str(refused.value)


def reads(result: Any, **fields: Any) -> type[Tool[Any]]:
    """A Read with this result type and these arguments."""
    body = {"__doc__": "Look. Use before.", "__annotations__": fields, "run": lambda self, ctx: None, "__module__": "m"}
    made: type[Tool[Any]] = new_class("Looks", (Read[result],), exec_body=lambda names: names.update(body))
    return made


class Inner(BaseModel):
    amount: float = 0.0


class Other(BaseModel):
    name: str


class Measured(BaseModel):
    rows: list[Inner] = []


def nested(levels: int) -> Any:
    kind: Any = int
    for level in range(levels):
        kind = create_model(f"L{level}", x=(kind, ...))
    return kind


SHAPES = [
    (reads(int, pair=tuple[int, str]), "not a tuple"),
    (reads(int, names=dict[str, int]), "a map of free keys"),
    (reads(int, names=dict), "map of free keys"),
    (reads(int, share=float), "a float loses digits"),
    (reads(int, share=list[float | None]), "a float loses digits"),
    (reads(int, thing=Any), "Any says nothing about its shape"),
    (reads(int, things=list), "Any says nothing about its shape"),
    (reads(int, deep=nested(11)), "nest deeper than 10"),
    (reads(float), "result holds a float"),
    (reads(Measured), "result holds a float"),
    (reads(dict[str, list[Inner | None]]), "result holds a float"),
]


@pytest.mark.parametrize(("tool", "words"), SHAPES)
def test_a_shape_that_is_not_portable_or_not_exact_is_refused(tool: type[Tool[Any]], words: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Agent(name="a", tools=[tool])
    assert words in str(refused.value)


@pytest.mark.parametrize("result", [int, Decimal, list[Other], dict[str, Decimal], None, Other | None, Any])
def test_a_result_without_a_float_is_welcome(result: Any) -> None:
    assert Agent(name="a", tools=[reads(result, deep=nested(8))]).menu["looks"]


def six() -> list[type[Tool[Any]]]:
    body = {"__doc__": "Look. Use before.", "__module__": "m"}
    return [new_class(f"Look{n}", (Look,), exec_body=lambda names: names.update(body)) for n in range(6)]


class Done(Look):
    """Look. Use before."""


class Look2(Look, was=("look",)):
    """Look. Use before."""


AGENTS: list[tuple[dict[str, Any], str]] = [
    ({"tools": six()}, "at most 5. Split the agent"),
    ({"tools": [Look, Look]}, "two tools are named 'look'"),
    ({"tools": [Done]}, "two tools are named 'done'"),
    ({"tools": [Look, Look2]}, "'look' is both a tool and the former name"),
    ({"tools": [twelvefold.Wait]}, "derives from none of Read, Write and Effect"),
    ({"tools": [Read]}, "classes that derive from"),
    ({"tools": [Look()]}, "classes that derive from"),
    ({"tools": [], "returns": dict}, "returns= is a pydantic model"),
    ({"tools": [], "returns": Measured}, "a float loses digits"),
    ({"tools": [], "accepts": Measured}, "accepts= holds a float"),
    ({"tools": [], "budget": Budget(decisions=101)}, "over 100. Split the agent"),
    ({"tools": [], "budget": Budget(active=timedelta(hours=2))}, "over one hour. Waiting is not counted"),
]


@pytest.mark.parametrize(("declared", "words"), AGENTS, ids=[words for _, words in AGENTS])
def test_a_wrong_agent_is_refused_with_a_message_that_mends_it(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Agent(name="wrong", **declared)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("bind", "words"),
    [
        (lambda: on.webhook("", type="push"), "on.webhook needs a source and a type"),
        (lambda: on.webhook("github", type=""), "on.webhook needs a source and a type"),
        (lambda: to.email("o p s"), "or an address such as"),
    ],
)
def test_a_wrong_binding_is_refused(bind: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        bind()
    assert words in str(refused.value)


def test_an_agent_is_named_after_its_folder_and_its_prompt_after_it() -> None:
    from tests.agents.notes.agent import agent

    assert (agent.name, agent.prompts) == ("notes", ("notes.md",))


def test_a_tool_declares_its_delays_in_its_header() -> None:
    assert (Pay.__spec__.timeout, Pay.__spec__.settle_after, Pay.__spec__.doubt) == (5, 10, "ask")


def test_what_an_author_may_import_is_pinned() -> None:
    assert twelvefold.__all__ == [
        "AUTO", "DESTRUCTIVE", "Agent", "AskHuman", "Budget", "Conflict", "Ctx", "DeclarationError", "Delegate",
        "Directory", "Done", "Effect", "Ended", "Fatal", "Flow", "Free", "Ignore", "Known", "Memory", "Message",
        "NothingToDo", "Plan", "Preview", "Read", "Recall", "Remember", "State", "Task", "Text", "Tick", "ToolError",
        "Verdict", "Wait", "Wake", "Write", "ask", "deny", "on", "to",
    ]  # fmt: skip
    assert all(hasattr(twelvefold, name) for name in twelvefold.__all__)
