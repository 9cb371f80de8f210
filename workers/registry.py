"""Find the agents: every package below the modules named in AGENT_MODULES has one value named `agent`.

The only module that imports agents by name. Prompts are read here, once; a script, where there is one, serves the
scripted model.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triggers.cron import cron
from twelvefold.agent import Agent, Ended, Message
from twelvefold.bindings import ApiBinding, CronBinding, EmailBinding, FinishedBinding, WebhookBinding
from twelvefold.budget import Budget
from twelvefold.directory import Directory
from twelvefold.errors import DeclarationError
from twelvefold.state import Task
from twelvefold.tokens import tokens_of
from twelvefold.tool import Tool
from twelvefold.verdict import Verdict

from .flows import Flows
from .prompts import Part

Script = Callable[[Task], Tool[Any] | list[Tool[Any]]]
"""What stands in for a model: one call, or several that only read, as a model may reply too."""
MOST_LINES = 50
SYSTEM_TOKENS = 800
"""The most of a system prompt, all its files together."""


@dataclass(frozen=True)
class Loaded:
    """One agent with its prompt text and, for the scripted model, its script."""

    agent: Agent
    prompt: str
    version: str
    script: Script | None
    parts: tuple[Part, ...] = ()
    folder: Path | None = None


class Registry:
    """All agents of a process, by name. `known` is what a claim is matched against: {agent name: version}."""

    def __init__(self, loaded: list[Loaded]) -> None:
        self.loaded: Mapping[str, Loaded] = {entry.agent.name: entry for entry in loaded}
        if len(self.loaded) != len(loaded):
            raise DeclarationError("Two agents have the same name; every name must be unique among AGENT_MODULES.")
        self.known = json.dumps({name: entry.agent.version for name, entry in self.loaded.items()})
        self.budgets: dict[str, Budget] = {name: entry.agent.budget for name, entry in self.loaded.items()}
        self._bindings = _bindings(loaded)
        self._listening = _listening(loaded)
        self._followers = _followers(loaded)
        self.flows = Flows({name: entry.agent for name, entry in self.loaded.items()})
        self.schedules = _schedules(loaded)
        for entry in loaded:
            _check_delegates(entry.agent, self.loaded)

    def __getitem__(self, name: str) -> Loaded:
        return self.loaded[name]

    def check_names(self, directory: Directory) -> None:
        """Raise DeclarationError where an agent names somebody whom the directory does not have. `#names` are channels.
        Without any directory only what is sent by mail has to have an address: questions are told in the log.
        """
        used: dict[str, str] = {}
        for name, entry in self.loaded.items():
            agent = entry.agent
            used |= {d.recipient: name for d in agent.delivery if d.channel == "email" and "@" not in d.recipient}
            if directory.names:
                stuck = [agent.on_stuck.target] if isinstance(agent.on_stuck, Verdict) else []
                late = agent.questions.escalate_to.split(",") if agent.questions else []
                named = [*agent.people, *stuck, *(who.strip() for who in late if who.strip() and "@" not in who)]
                used |= {asked: name for asked in named if not asked.startswith("#")}
        if problems := directory.unknown(used):
            raise DeclarationError(
                "; ".join(problems) + '. Example: TWELVEFOLD_DIRECTORY={"refund-ops": "ann@shop.example"}'
            )

    def bound(self, source: str, kind: str) -> tuple[Loaded, WebhookBinding | EmailBinding] | None:
        """The agent that a delivery of this source and type opens a task of, None when nobody listens."""
        return self._bindings.get((source, kind))

    def followers(self, agent: str) -> list[tuple[Loaded, FinishedBinding]]:
        """The agents that the end of a run of this one opens a task of."""
        return self._followers.get(agent, [])

    @property
    def mailboxes(self) -> dict[str, EmailBinding]:
        """The addresses that some agent takes mails at, in lower case."""
        return {each.type: each for _, each in self._bindings.values() if isinstance(each, EmailBinding)}

    def takers(self, text: str) -> list[Loaded]:
        """The agents that take a message nobody addressed: those that say yes to it, else the one that takes the rest.

        More than one means that the message is theirs all, and so nobody's.
        """
        asked = {entry.agent.name: entry for entry, takes in self._listening if takes is not None and takes(text)}
        return list(asked.values()) or [entry for entry, takes in self._listening if takes is None]


def load(modules: str) -> Registry:
    """Load every agent of a comma-separated list of packages. Raises DeclarationError with how to mend it."""
    found: list[Loaded] = []
    for name in filter(None, (part.strip() for part in modules.split(","))):
        package = importlib.import_module(name)
        root = Path(next(iter(package.__path__)))
        folders = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg)
        found += [_load(f"{name}.{folder}", root.parent / "prompts", root / folder) for folder in folders]
    return Registry(found)


def _load(module: str, prompts: Path, folder: Path) -> Loaded:
    agent = getattr(importlib.import_module(f"{module}.agent"), "agent", None)
    if not isinstance(agent, Agent):
        raise DeclarationError(f"{module}.agent has no value `agent = Agent(...)`.")
    parts = tuple(Part(f"{prompts.name}/{name}", _prompt(agent, prompts / name)) for name in agent.prompts)
    text = "\n\n".join(part.text for part in parts)
    if tokens_of(text) > SYSTEM_TOKENS:
        raise DeclarationError(
            f"{agent.name}: its prompt is {tokens_of(text)} tokens, of which every question to the model has at most "
            f"{SYSTEM_TOKENS}. Shorten it, or split what can be verified apart."
        )
    has_script = importlib.util.find_spec(f"{module}.script") is not None
    script = importlib.import_module(f"{module}.script").script if has_script else None
    return Loaded(agent, text, agent.fingerprint(text), script, parts, folder)


def _prompt(agent: Agent, path: Path) -> str:
    if not path.is_file():
        raise DeclarationError(f"{agent.name}: no prompt at prompts/{path.name}. Write it: what the agent is for.")
    text = path.read_text(encoding="utf-8").strip()
    if len(text.splitlines()) > MOST_LINES:
        raise DeclarationError(f"{agent.name}: prompts/{path.name} is over {MOST_LINES} lines. Split what differs.")
    return text


def _bindings(loaded: list[Loaded]) -> dict[tuple[str, str], tuple[Loaded, WebhookBinding | EmailBinding]]:
    table: dict[tuple[str, str], tuple[Loaded, WebhookBinding | EmailBinding]] = {}
    for entry in loaded:
        for binding in (each for each in entry.agent.triggers if isinstance(each, WebhookBinding | EmailBinding)):
            place = (binding.source, binding.type)
            if place in table:
                other = table[place][0].agent.name
                raise DeclarationError(f"{entry.agent.name} and {other} both listen to {place}. One event, one agent.")
            table[place] = (entry, binding)
    return table


def _followers(loaded: list[Loaded]) -> dict[str, list[tuple[Loaded, FinishedBinding]]]:
    table: dict[str, list[tuple[Loaded, FinishedBinding]]] = {}
    for entry in loaded:
        for binding in (each for each in entry.agent.triggers if isinstance(each, FinishedBinding)):
            if binding.agent not in {other.agent.name for other in loaded}:
                raise DeclarationError(f"{entry.agent.name}: on.finished({binding.agent!r}): no agent has this name.")
            if any(entry is known for known, _ in table.get(binding.agent, ())):
                raise DeclarationError(f"{entry.agent.name} follows {binding.agent} twice. One on.finished, one task.")
            if binding.read is None and not _accepts(entry.agent, Ended(agent="a", task="t", status="done")):
                raise DeclarationError(
                    f"{entry.agent.name}: on.finished brings an Ended, so accepts= must take one, or read= make "
                    "something else of it: on.finished('deploy', read=lambda ended: Message(text=ended.reason))"
                )
            table.setdefault(binding.agent, []).append((entry, binding))
    for entry in loaded:
        _check_no_circle(entry.agent.name, entry.agent.name, table, set())
    return table


def _check_no_circle(
    first: str, name: str, table: Mapping[str, list[tuple[Loaded, FinishedBinding]]], seen: set[str]
) -> None:
    for follower in (entry.agent.name for entry, _ in table.get(name, ())):
        if follower == first:
            raise DeclarationError(f"{first} follows the end of {name}, which follows {first}: that would never end.")
        if follower not in seen:
            _check_no_circle(first, follower, table, seen | {follower})


def _listening(loaded: list[Loaded]) -> list[tuple[Loaded, Callable[[str], bool] | None]]:
    found = [(entry, b.takes) for entry in loaded for b in entry.agent.triggers if isinstance(b, ApiBinding)]
    for entry, _ in found:
        if not accepts_message(entry.agent):
            raise DeclarationError(f"{entry.agent.name}: on.api brings a Message, so accepts= must take one.")
    rest = [entry.agent.name for entry, takes in found if takes is None]
    if len(rest) > 1:
        raise DeclarationError(f"{' and '.join(rest)} all take every message. Give all but one on.api(takes=...).")
    return found


def _schedules(loaded: list[Loaded]) -> dict[tuple[str, str], CronBinding]:
    """What the agents declare, by agent and name."""
    found: dict[tuple[str, str], CronBinding] = {}
    for entry in loaded:
        for binding in (each for each in entry.agent.triggers if isinstance(each, CronBinding)):
            place = (entry.agent.name, binding.name)
            if place in found:
                raise DeclarationError(f"{place[0]}: two schedules are named {binding.name!r}. Give each its own name.")
            try:
                cron(binding.cron, binding.tz, binding.dst)
            except DeclarationError as error:
                raise DeclarationError(f"{place[0]}: the schedule {binding.name!r}: {error}") from None
            found[place] = binding
    return found


def accepts_message(agent: Agent) -> bool:
    """Whether free text can open a task of this agent."""
    return _accepts(agent, Message(text=""))


def _accepts(agent: Agent, value: Message | Ended) -> bool:
    try:
        agent.accepted.validate_python(value.model_dump())
    except ValueError:
        return False
    return True


def _check_delegates(agent: Agent, loaded: Mapping[str, Loaded]) -> None:
    for name in agent.delegates:
        if name not in loaded:
            raise DeclarationError(f"{agent.name}: delegates to {name!r}, which is not among the loaded agents.")
        if not accepts_message(loaded[name].agent):
            raise DeclarationError(f"{agent.name}: delegate {name!r} must accept a Message.")
