"""Memory in a step: whom a task keeps something about, and the two calls that keep it and look it up."""

from __future__ import annotations

from twelvefold.errors import ToolError
from twelvefold.memory import Memory, Recall, Remember
from twelvefold.state import OpenCall

from .store import memories
from .store.database import Connection
from .work import Runtime, Work


def remember(work: Work, connection: Connection, call: OpenCall, tool: Remember) -> str:
    """Keep it in the transaction of the commit, with where it came from. Raises ToolError where there is no subject."""
    subject, s = subject_of(work), work.state
    sender = work.task.read(s.message_seq or s.opened).get("sender") or ""
    memory = Memory(
        text=tool.text, at=work.now(), agent=work.agent.name, task=work.held.id, seq=call.seq, sender=sender,
        tainted=bool(s.tainted),
    )  # fmt: skip
    memories.keep(connection, memory, tenant=work.held.tenant, subject=subject)
    return f"kept about {subject}"


def recall(work: Work, run: Runtime, tool: Recall) -> list[Memory]:
    """What was kept about the task's subject. Raises ToolError where there is none."""
    return memories.recall(run.db, tool.query, tenant=work.held.tenant, subject=subject_of(work))


def subject_of(work: Work) -> str:
    """Whom memory is about: as the agent's `memory=` says of the event, else the business entity."""
    named = work.agent.memory(work.task.event) if work.agent.memory else work.state.about
    if not named:
        raise ToolError(
            "This task is about nobody yet, so nothing can be remembered or recalled.",
            suggestion="Go on without it.",
        )  # fmt: skip
    return named
