"""Twelvefold's core: all that an agent's author imports."""

from .agent import Agent, Ended, Message, Text, Tick
from .bindings import Ignore, Wake, on, to
from .budget import Budget
from .controls import Delegate, Done, NothingToDo, Plan, Wait
from .directory import Directory
from .errors import Conflict, DeclarationError, Fatal, ToolError
from .flow import Flow
from .marks import Free, Known
from .memory import Memory, Recall, Remember
from .questions import AskHuman
from .state import State, Task
from .tool import DESTRUCTIVE, Ctx, Effect, Preview, Read, Write
from .verdict import AUTO, Verdict, ask, deny

__all__ = [
    "AUTO",
    "DESTRUCTIVE",
    "Agent",
    "AskHuman",
    "Budget",
    "Conflict",
    "Ctx",
    "DeclarationError",
    "Delegate",
    "Directory",
    "Done",
    "Effect",
    "Ended",
    "Fatal",
    "Flow",
    "Free",
    "Ignore",
    "Known",
    "Memory",
    "Message",
    "NothingToDo",
    "Plan",
    "Preview",
    "Read",
    "Recall",
    "Remember",
    "State",
    "Task",
    "Text",
    "Tick",
    "ToolError",
    "Verdict",
    "Wait",
    "Wake",
    "Write",
    "ask",
    "deny",
    "on",
    "to",
]
