"""An agent is one value: what it accepts and returns, its tools, its limits, where it listens and where it answers.

A wrong declaration fails when the value is made, with a message that says how to mend it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, create_model

from .bindings import Binding, CronBinding, Destination, to
from .budget import Budget
from .canonical import canonical, sha256
from .controls import Delegate, Done, Explain, NextPage, NothingToDo, Plan, Wait
from .directory import is_name
from .errors import DeclarationError
from .flow import UNLIMITED, Flow
from .memory import Recall, Remember
from .questions import AskHuman, AskWhenStuck
from .schema import check_exact, check_portable, menu_entry
from .state import Task
from .tokens import tokens_of
from .tool import Ctx, Tool
from .verdict import Verdict

MOST_TOOLS = 5
MENU_TOKENS = 1_000
"""What the agent's own tools may take of the menu; those of the core come on top."""
OF_THE_CORE = (AskHuman, Plan, Recall, Remember)
"""Calls that an agent has only when it lists them; they are no tools of its own."""
TAG = re.compile(r"[a-z_][a-z0-9_]*")


class Message(BaseModel):
    """Free text from a person."""

    model_config = ConfigDict(frozen=True)
    text: str
    subject: str = ""
    sender: str = ""


class Ended(BaseModel):
    """The end of another agent's run, as `on.finished` brings it: its task, how and with what it ended."""

    model_config = ConfigDict(frozen=True)
    agent: str
    task: str
    status: Literal["done", "failed", "cancelled"]
    reason: str = ""
    outcome: Any = None
    about: str | None = None


class Tick(BaseModel):
    """The time of a schedule has come. `late`: it was missed, and is made up for."""

    model_config = ConfigDict(frozen=True)
    name: str
    at: AwareDatetime
    late: bool = False


class Text(BaseModel):
    """A result that is just text."""

    model_config = ConfigDict(frozen=True)
    text: str


@dataclass(frozen=True, kw_only=True)
class Agent:
    """The declaration of an agent. `prefetch` functions look things up before the first decision of a run, each shown
    in a tag of its name; `steer(task) -> call | None` lets code speak first each turn; `success` functions return why
    the work is not done yet, or None; `about` names the business entity of an accepted event,
    and `memory` whom `Remember` and `Recall` are about where that is another; `people` are the names
    that AskHuman may ask, each from the directory or of a channel; `review(task, outcome)` is the verdict on a result
    before it is delivered; with `one_open_per_entity` what arrives about an entity is news for its open task.
    `on_stuck`: a run that does not get on waits for an operator, fails, or asks somebody how to go on, as in
    `ask("#refund-ops")`. `on_message`: a message that comes while a call waits for approval is shown to whoever
    decides, or the call is given up and the model decides anew, or the run is cancelled. `questions`: when AskHuman
    reminds, and who is asked too when nobody answers, as in `ask(remind=timedelta(hours=1), escalate_to="boss")`.
    """

    tools: list[type[Tool[Any]]]
    accepts: Any = Message
    returns: type[BaseModel] = Text
    name: str = ""
    prompt: str | list[str] = ""
    model: str = ""
    version: int = 1
    about: Callable[[Any], str | None] | None = None
    memory: Callable[[Any], str | None] | None = None
    prefetch: list[Callable[[Ctx], Any]] = field(default_factory=list)
    steer: Callable[[Task], Tool[Any] | None] | None = None
    success: list[Callable[[Task], str | None]] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    on_stuck: Literal["operator", "failed"] | Verdict = "operator"
    questions: Verdict | None = None
    on_message: Literal["new_information", "decide", "cancel"] = "new_information"
    one_open_per_entity: bool = False
    delegates: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    flow: Flow = UNLIMITED
    triggers: list[Binding] = field(default_factory=list)
    delivery: list[Destination] = field(default_factory=lambda: [to.reply()])
    subject: Callable[[Any], str] | None = None
    review: Callable[[Task, Any], Verdict] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", _folder_of_caller())
        if any(isinstance(each, CronBinding) and each.read is None for each in self.triggers):
            object.__setattr__(self, "accepts", self.accepts | Tick)
        _check(self)

    @cached_property
    def menu(self) -> dict[str, type[Tool[Any]]]:
        """Every tool this agent may ever call, by name; what is not here cannot happen."""
        done = create_model(
            "Done", __base__=Done, __module__=__name__, outcome=(self.returns, ...), __doc__=Done.__doc__
        )
        controls: list[type[Tool[Any]]] = [done, NothingToDo, Wait, NextPage, Explain]
        if self.delegates:
            names: Any = Literal[tuple(self.delegates)]
            controls.append(
                create_model(
                    "Delegate", __base__=Delegate, __module__=__name__, agent=(names, ...), __doc__=Delegate.__doc__
                )
            )
        own = [tool for tool in self.tools if tool is not AskHuman]
        stuck = [self.on_stuck.target] if isinstance(self.on_stuck, Verdict) else []
        if stuck and not self.people:
            controls.append(
                create_model("AskHuman", __base__=AskWhenStuck, __module__=__name__, __doc__=AskHuman.__doc__)
            )
        if self.people:
            targets: Any = Literal[tuple(dict.fromkeys([*self.people, *stuck]))]
            controls.append(
                create_model(
                    "AskHuman", __base__=AskHuman, __module__=__name__, target=(targets, ...), __doc__=AskHuman.__doc__
                )
            )
        return {tool.__spec__.name: tool for tool in [*own, *controls]}

    @property
    def looks(self) -> bool:
        """Whether anything but its prompt and the words of people can tell it something."""
        return bool(self.prefetch or self.delegates or [tool for tool in self.tools if tool not in OF_THE_CORE])

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Former tool names and what each is called today."""
        return {old: name for name, tool in self.menu.items() for old in tool.__spec__.was}

    def offered(self, task: Task) -> tuple[str, ...]:
        """What the model may choose now. Who is asked about a call that waits explains it, and no more."""
        if Explain.offered(task):
            return (Explain.__spec__.name,)
        return tuple(name for name, tool in self.menu.items() if tool.offered(task))

    @cached_property
    def menu_entries(self) -> dict[str, dict[str, Any]]:
        """Each tool as the model reads it."""
        return {name: menu_entry(tool) for name, tool in self.menu.items()}

    @cached_property
    def _menu_texts(self) -> dict[tuple[str, ...], str]:
        return {}

    def menu_text(self, offered: tuple[str, ...]) -> str:
        """The menu of the offered tools as canonical JSON; kept, as it is the same for most requests."""
        if offered not in self._menu_texts:
            self._menu_texts[offered] = canonical([self.menu_entries[name] for name in offered])
        return self._menu_texts[offered]

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The prompt files, in order, below the folder `prompts`."""
        return (self.prompt,) if isinstance(self.prompt, str) else tuple(self.prompt)

    @cached_property
    def accepted(self) -> TypeAdapter[Any]:
        """Validates what may open a task."""
        return TypeAdapter(self.accepts)

    def fingerprint(self, prompt_text: str) -> str:
        """The agent's version as a hash: prompt, menu, model, budget."""
        return sha256(prompt_text, canonical(self.menu_entries), self.model, self.budget.model_dump_json())[:16]


def _folder_of_caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    parts = str(frame.f_globals.get("__name__", "")).split(".")
    return parts[-2] if len(parts) > 1 else parts[0]


def _check(agent: Agent) -> None:
    if not agent.prompt:
        object.__setattr__(agent, "prompt", f"{agent.name}.md")
    own = [tool for tool in agent.tools if tool not in OF_THE_CORE]
    if len(own) > MOST_TOOLS:
        raise DeclarationError(
            f"{agent.name}: {len(own)} tools of its own; at most {MOST_TOOLS}. Split the agent, route in code."
        )
    for tool in own:
        _check_tool(agent, tool)
    _check_people(agent)
    _check_reactions(agent)
    if agent.one_open_per_entity and agent.about is None:
        raise DeclarationError(
            f"{agent.name}: one_open_per_entity needs about=, which names the entity of what arrives, such as "
            "about=lambda m: m.order_id."
        )
    _check_names(agent)
    _check_prefetch(agent)
    if not (isinstance(agent.returns, type) and issubclass(agent.returns, BaseModel)):
        raise DeclarationError(
            f"{agent.name}: returns= is a pydantic model, such as Text; Done is validated against it."
        )
    for offered in agent.menu.values():
        check_portable(offered)
    _check_menu(agent, [tool.__spec__.name for tool in own])
    check_exact(agent.accepted, f"{agent.name}: accepts=")
    agent.budget.refuse_absurd(agent.name)


def _check_menu(agent: Agent, own: list[str]) -> None:
    tokens = {name: tokens_of(agent.menu_text((name,))) for name in own}
    if sum(tokens.values()) > MENU_TOKENS:
        most = max(tokens, key=lambda name: tokens[name])
        raise DeclarationError(
            f"{agent.name}: its tools are {sum(tokens.values())} tokens of menu, of which every question to the model "
            f"has at most {MENU_TOKENS}. The longest is {most} with {tokens[most]}: shorten its text and its "
            "fields, or split the agent."
        )


def _check_tool(agent: Agent, tool: Any) -> None:
    if not (isinstance(tool, type) and issubclass(tool, Tool) and hasattr(tool, "__spec__")):
        raise DeclarationError(f"{agent.name}: tools= holds classes that derive from Read, Write or Effect: {tool!r}.")
    if tool.__spec__.kind == "control":
        raise DeclarationError(f"{agent.name}: {tool.__name__} derives from none of Read, Write and Effect.")


def _check_names(agent: Agent) -> None:
    own = [tool.__spec__.name for tool in agent.tools if tool not in OF_THE_CORE]
    core = [tool.__spec__.name for tool in OF_THE_CORE]
    names = [*own, *core, "done", "nothing_to_do", "wait", "delegate", "explain", "next_page"]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"{agent.name}: two tools are named {name!r}. A name must mean one thing.")
    for former in (old for tool in agent.tools for old in tool.__spec__.was):
        if former in names:
            raise DeclarationError(f"{agent.name}: {former!r} is both a tool and the former name of one.")


def _check_people(agent: Agent) -> None:
    if (AskHuman in agent.tools) != bool(agent.people):
        raise DeclarationError(
            f"{agent.name}: AskHuman among the tools and people=[...] belong together: tools=[..., AskHuman], "
            "people=['refund-ops'] lets the agent ask whom the directory has under that name."
        )
    for name in agent.people:
        if not is_name(name):
            raise DeclarationError(
                f"{agent.name}: people= holds names of the directory, not {name!r}: the model reads them, and it never "
                "sees an address. Example: people=['refund-ops']"
            )


def _check_reactions(agent: Agent) -> None:
    times = agent.questions
    if times is not None and (times.kind != "ask" or times.target or times.quorum > 1):
        raise DeclarationError(
            f"{agent.name}: questions= holds the times of questions and whom to ask too, not who is asked: one answer "
            "is enough, and the model names somebody of people=. Example: questions=ask(escalate_to='boss')"
        )
    stuck = agent.on_stuck
    asks = isinstance(stuck, Verdict) and stuck.kind == "ask" and is_name(stuck.target)
    if not asks and stuck not in ("operator", "failed"):
        raise DeclarationError(
            f"{agent.name}: on_stuck= is 'operator', 'failed', or a question to one name of the directory, as in "
            "on_stuck=ask('#refund-ops')."
        )
    if agent.on_message not in ("new_information", "decide", "cancel"):
        raise DeclarationError(
            f"{agent.name}: on_message={agent.on_message!r} is none of 'new_information' (whoever approves sees the "
            "message), 'decide' (the model decides anew) and 'cancel' (the run ends)."
        )


def _check_prefetch(agent: Agent) -> None:
    names = [getattr(look, "__name__", repr(look)) for look in agent.prefetch]
    for name in names:
        if not TAG.fullmatch(name):
            raise DeclarationError(
                f"{agent.name}: prefetch= holds functions, and each name is a tag that the model reads: write "
                f"`def the_order(ctx)` and prefetch=[the_order], not {name}."
            )
        if names.count(name) > 1:
            raise DeclarationError(f"{agent.name}: two prefetch functions are called {name!r}. One tag, one meaning.")
