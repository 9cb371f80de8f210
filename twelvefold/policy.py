"""May this call run? Deny by default; the agent's rule is asked live, its verdict is stored and bound by a digest."""

from __future__ import annotations

from .agent import Agent
from .canonical import call_digest
from .controls import Done
from .events import Decided, Rejected
from .schema import stored_call
from .state import OpenCall, Task
from .tool import DESTRUCTIVE, Tool
from .verdict import Verdict, deny
from .vouching import unknown

TAINTED = "it changes the outside after text of an unproven sender was read"


def verdict_of(agent: Agent, task: Task, call: Tool[object]) -> Verdict:
    """The verdict on a call: not on the menu or not offered is denied, destructive never runs unasked
    and is of high risk whatever the rule says, and so does what leaves our own rows once the task has read text of an
    unproven sender.
    """
    name = call.__spec__.name
    if name not in agent.menu:
        return deny(f"{name} is not among this agent's tools.")
    if name not in agent.offered(task):
        return deny(f"{name} is not offered now.")
    if isinstance(call, Done) and agent.review is not None:
        verdict = agent.review(task, call.outcome)
    else:
        verdict = call.approval(task)
    if DESTRUCTIVE in call.__spec__.needs and verdict.kind != "deny":
        verdict = verdict.model_copy(
            update={"kind": "ask", "reason": verdict.reason or f"{name} is destructive", "risk": "high"}
        )
    if task.state.tainted and call.__spec__.kind == "effect" and verdict.kind != "deny":
        verdict = verdict.model_copy(
            update={"kind": "ask", "reason": verdict.reason or TAINTED, "risk": "high", "tainted": task.state.tainted}
        )
    if verdict.kind == "ask" and verdict.at_expiry == "allow" and call.__spec__.kind != "read":
        return deny(f"{name} is no Read, so it may not run because nobody decided: at_expiry='deny' or 'park'.")
    return verdict


def judged(agent: Agent, task: Task, decided: Decided, seq: int) -> Decided:
    """The decision with its verdict and digest, as it will stand in the log under `seq`."""
    call = stored_call(agent.menu, agent.renamed, decided.tool, decided.args)
    verdict = verdict_of(agent, task, call)
    return decided.model_copy(
        update={
            "verdict": verdict.kind,
            "reason": verdict.reason,
            "about": call.about() or decided.about,
            "digest": digest_of(task, seq, decided.tool, decided.args, verdict),
        }
    )


def vouched(agent: Agent, task: Task, decided: Decided, seq: int) -> Decided | Rejected:
    """The decision as `judged`; or why it cannot be, where a model wrote an id that the task has never seen."""
    if decided.by == "model":
        why = unknown(stored_call(agent.menu, agent.renamed, decided.tool, decided.args), task.facts)
        if why:
            return Rejected(kind="unknown_value", text=why, tool=decided.tool)
    return judged(agent, task, decided, seq)


def digest_of(task: Task, seq: int, tool: str, args: str, verdict: Verdict, preview: str = "") -> str:
    """The digest an approval of this call is bound to."""
    return call_digest(task.id, seq, tool, args, verdict.model_dump_json(), preview)


def recheck(agent: Agent, task: Task, open_call: OpenCall) -> Verdict:
    """The verdict on the stored call as of now, asked again right before it begins."""
    return verdict_of(agent, task, stored_call(agent.menu, agent.renamed, open_call.tool, open_call.args))
