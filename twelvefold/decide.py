"""What comes next, decided once and live: from a folded state to further events, or to one want.

This is the control flow, all of it. It may ask the agent's code (steer, success, approval through `policy`); what that
code said is in the events returned here, so a replay never asks it again.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from .agent import Agent
from .budget import Budget, Usage, stagnation
from .canonical import canonical
from .controls import Delegate, Done, NextPage, NothingToDo, Plan
from .effects import Feed, Find, OpenPage, Prefetch, Record, Rest, RunEffect, RunPreview, RunRead, RunWrite, Want
from .events import (
    ApprovalAsked,
    ApprovalMoved,
    CancelAsked,
    ChildStarted,
    Decided,
    DoneRefused,
    Doubted,
    Event,
    Failed,
    Finished,
    LimitReached,
    PolicyDenied,
    Reopened,
    Returned,
    Settled,
    Stuck,
)  # fmt: skip
from .grants import covering, grantable
from .policy import digest_of, recheck
from .questions import ASKING, AskHuman
from .room import coming
from .schema import arguments_of, stored_call, stored_tool
from .state import OpenCall, State, Task, unused
from .text import shorten
from .tool import Effect, Tool
from .verdict import Verdict
from .vouching import unreported

SAME_KEY_ATTEMPTS = 3
MOST_STALE = 3
MOST_FAILURES = 3
MOST_REJECTIONS = 2
MOST_CHILDREN = 20
MOST_DEPTH = 3
LIFETIME = 10
"""A task's lifetime holds so many budgets."""
NOTHING = Usage()
NO_MORE = "The agent has nothing to add."
UNDECIDED, UNANSWERED = "Nobody decided in time. This is no rejection.", "Nobody answered in time."


def decide(agent: Agent, task: Task, now: datetime) -> list[Event] | Want:
    """The next events, or what the step has to carry out."""
    s = task.state
    if s.held and s.status == "ready" and not (s.cancel and _nothing_outside(s.call)):
        return Feed(s.held)
    if s.status in ("done", "failed", "cancelled"):
        return _reopen(s)
    if s.status == "quarantined":
        return Rest()
    if s.call is not None:
        return _with_call(agent, task, s.call, now)
    if s.cancel:
        return [Finished(status="cancelled", reason="asked")]
    if s.reason in ("in_doubt", "stuck"):
        return [Finished(status="failed", reason=s.reason)]
    if s.status == "waiting":
        return Rest()
    return _next_decision(agent, task, now)


def _nothing_outside(call: OpenCall | None) -> bool:
    """Whether what was held back may be dropped under cancel, since no effect is part of it."""
    return call is None or call.phase not in ("begun", "doubt", "settled")


def _reopen(s: State) -> list[Event] | Want:
    """Only a message newer than the ending opens a new run, and only of a task that is done."""
    if s.status == "done" and s.message_seq > s.outcome_seq:
        return [Reopened(run=s.run + 1, by=s.message_seq)]
    return Rest()


def _with_call(  # noqa: C901 - one arm a phase
    agent: Agent, task: Task, call: OpenCall, now: datetime
) -> list[Event] | Want:
    s = task.state
    match call.phase:
        case "begun":
            return [doubted(agent, call, now, "the worker was lost after the effect had begun")]
        case "doubt":
            return _in_doubt(agent, task, call, now)
        case "settled":
            return Record()
        case "asked" | "questioned" if s.cancel:
            return [ApprovalMoved(call=call.seq, to="superseded", reason="cancelled")]
        case "asked" | "questioned" if _overtaken(agent, s, call):
            return [_interrupted(agent, call)]
        case "asked" if s.status == "ready":
            return [_overdue(call, now)]
        case "questioned" if s.status == "ready":
            return _questioned(agent, s, call, now)
    if s.cancel:
        return [Finished(status="cancelled", reason="asked")]
    if s.status == "waiting":
        return Rest()
    if call.phase == "chosen":
        return _verdict(agent, task, call, now)
    if call.edited:
        moved = _edited(agent, task, call)
        if moved is not None:
            return [moved]
    if call.kind == "control":
        return _control(agent, task, call, now)
    if call.verdict == "ask" and _shown_args(agent, call) != call.args:
        return [ApprovalMoved(call=call.seq, to="stale", reason="the tool's arguments were upgraded since")]
    if call.kind == "effect":
        return RunEffect(attempt=1, key=_key(agent, task, call))
    return RunRead() if call.kind == "read" else RunWrite()


def _overtaken(agent: Agent, s: State, call: OpenCall) -> bool:
    """Whether a message came since somebody was asked to approve, and the agent does more than to show it to them."""
    return agent.on_message != "new_information" and not call.is_question and s.message_seq > call.asked


def _interrupted(agent: Agent, call: OpenCall) -> Event:
    """What such a message does to the call."""
    if agent.on_message == "cancel":
        return CancelAsked(by="on_message", reason="a message came while a call waited for approval")
    return ApprovalMoved(call=call.seq, to="superseded", reason="a message came, so the agent decides anew")


def _overdue(call: OpenCall, now: datetime) -> ApprovalMoved:
    """What a question comes to whose next time has passed: nobody decided, or nobody has decided yet."""
    if call.due is None or call.due <= now:
        then = call.asks.at_expiry if call.asks else "deny"
        return ApprovalMoved(
            call=call.seq, to="expired", reason=UNANSWERED if call.is_question else UNDECIDED,
            then="" if then == "deny" else then,
        )  # fmt: skip
    late = call.escalate_at is not None and call.escalate_at <= now
    return ApprovalMoved(call=call.seq, to="escalated" if late else "reminded")


def _questioned(agent: Agent, s: State, call: OpenCall, now: datetime) -> list[Event] | Want:
    """A person asks about the call: the model may only explain it, and where it cannot, the person decides without."""
    if call.due is not None and call.due <= now:
        return [_overdue(call, now)]
    says = call.says or (NO_MORE if _stuck(s) or _over(agent, s, now) else "")
    if says:
        return [ApprovalMoved(call=call.seq, to="explained", comment=says)]
    then = coming(s)
    return [ApprovalMoved(call=call.seq, to="explained", comment=NO_MORE)] if isinstance(then, LimitReached) else then


def _edited(agent: Agent, task: Task, call: OpenCall) -> Event | None:
    """What the rule says to arguments that a person put in the place of those it had seen; None: they may run."""
    verdict = recheck(agent, task, call)
    if verdict.kind == "deny":
        return PolicyDenied(call=call.seq, why=verdict.reason or "not allowed")
    if verdict.kind == "ask" and call.asks is not None and verdict.rule != call.asks.rule:
        return ApprovalMoved(call=call.seq, to="stale", reason="the rule asks others about the edited arguments")
    return None


def _key(agent: Agent, task: Task, call: OpenCall) -> str:
    own = _tool(agent, call)
    named = own.key() if isinstance(own, Effect) else None
    # order 7 of one tenant is not order 7 of another, and the outside may not know tenants
    return f"{task.tenant}:{named}" if named else f"{task.id}:{call.seq}"


def _tool(agent: Agent, call: OpenCall) -> Tool[Any]:
    return stored_call(agent.menu, agent.renamed, call.tool, call.args)


def _shown_args(agent: Agent, call: OpenCall) -> str:
    """The arguments as today's tool has them; an approval must be of these."""
    return arguments_of(_tool(agent, call))


def _verdict(agent: Agent, task: Task, call: OpenCall, now: datetime) -> list[Event] | Want:
    verdict = recheck(agent, task, call)
    if call.verdict == "deny" or verdict.kind == "deny":
        return [PolicyDenied(call=call.seq, why=verdict.reason or "not allowed")]
    why = _unfinished(agent, task, call)
    if why:
        return [DoneRefused(call=call.seq, why=why)]
    if call.stale >= MOST_STALE:
        return [
            PolicyDenied(call=call.seq, why=f"asked {MOST_STALE} times; no approval stayed valid until it could run")
        ]
    shown = _shown_args(agent, call)
    grant = None
    if grantable(verdict) and shown == call.args and not call.editor:
        grant = covering(task.grants(), verdict, task=task.id, tool=call.tool, args=shown, now=now)
    if grant is not None:
        until = f"granted until {grant.until:%Y-%m-%d %H:%M} UTC"
        return [ApprovalMoved(call=call.seq, to="approved", by=grant.by, reason=until, grant=grant.id)]
    if hasattr(_tool(agent, call), "dry_run") and not call.previewed:
        return RunPreview()
    preview = canonical(task.read(call.previewed).get("shown")) if call.previewed else ""
    return [
        ApprovalAsked(
            call=call.seq,
            args=shown if shown != call.args or call.edited or call.editor else "",
            digest=digest_of(task, call.seq, call.tool, shown, verdict, preview),
            verdict=verdict.model_dump_json(),
            target=verdict.target,
            reason=verdict.reason,
            risk=verdict.risk,
            deadline=now + verdict.deadline,
            editor=call.editor,
        )
    ]


def doubted(agent: Agent, call: OpenCall, now: datetime, reason: str, ms: int = 0) -> Doubted:
    """The doubt about a begun call, with how its tool settles it. Attempts of `same_key` are counted."""
    spec = stored_tool(agent.menu, agent.renamed, call.tool).__spec__
    then = spec.doubt
    if then == "same_key" and call.attempt >= SAME_KEY_ATTEMPTS:
        then = "ask"
    settle_at = now + timedelta(seconds=spec.settle_after) if then == "find" else None
    return Doubted(call=call.seq, attempt=call.attempt, reason=reason, then=then, settle_at=settle_at, ms=ms)


def _in_doubt(agent: Agent, task: Task, call: OpenCall, now: datetime) -> list[Event] | Want:
    if task.state.status == "waiting":
        return Rest()
    if call.doubt == "find":
        return Find()
    if call.doubt == "same_key" and not task.state.cancel:
        return RunEffect(attempt=call.attempt + 1, key=call.key)
    # under cancel nothing is sent again: look, or wait for a person
    tool = stored_tool(agent.menu, agent.renamed, call.tool)
    if issubclass(tool, Effect) and tool.find is not Effect.find:
        at = now + timedelta(seconds=tool.__spec__.settle_after)
        return [Settled(call=call.seq, how="unknown", by="cancel", settle_at=at)]
    return [Settled(call=call.seq, how="unknown", by="cancel")]


def _control(agent: Agent, task: Task, call: OpenCall, now: datetime) -> list[Event] | Want:
    tool = _tool(agent, call)
    if isinstance(tool, AskHuman):
        return [_question(agent, task, call, tool, now)]
    if isinstance(tool, NothingToDo):
        return [Finished(status="done", reason="nothing_to_do", outcome={"text": tool.reason})]
    if isinstance(tool, Done):
        why = _unfinished(agent, task, call)
        if why:
            return [DoneRefused(call=call.seq, why=why)]
        return [Finished(status="done", outcome=json.loads(call.args)["outcome"])]
    if isinstance(tool, Plan):
        return [Returned(call=call.seq, result="noted")]
    if isinstance(tool, Delegate):
        return _delegate(agent, task, call, tool)
    return OpenPage() if isinstance(tool, NextPage) else Rest()


def _question(agent: Agent, task: Task, call: OpenCall, tool: AskHuman, now: datetime) -> ApprovalAsked:
    stuck = agent.on_stuck if task.state.reason == ASKING and isinstance(agent.on_stuck, Verdict) else None
    times = stuck or agent.questions or Verdict(kind="ask")
    asked = Verdict(
        kind="ask", target=tool.target, risk="low", deadline=times.deadline, remind=times.remind,
        escalate=times.escalate, escalate_to=times.escalate_to, at_expiry="park" if stuck else "deny",
    )  # fmt: skip
    return ApprovalAsked(
        call=call.seq, digest=digest_of(task, call.seq, call.tool, call.args, asked), verdict=asked.model_dump_json(),
        target=tool.target, risk="low", deadline=now + asked.deadline, kind="question",
    )  # fmt: skip


def _unfinished(agent: Agent, task: Task, call: OpenCall) -> str | None:
    """Why a Done comes too early; nobody reviews what is not finished."""
    if call.tool != Done.__spec__.name:
        return None
    why = next((why for why in (check(task) for check in agent.success) if why), None)
    if why or not agent.looks or task.read(call.seq).get("by") == "code":
        return why
    done = _tool(agent, call)
    return unreported(done.outcome, task.facts) if isinstance(done, Done) else None


def _delegate(agent: Agent, task: Task, call: OpenCall, tool: Delegate) -> list[Event]:
    s = task.state
    if s.children_born >= MOST_CHILDREN or s.depth >= MOST_DEPTH:
        limit = f"{MOST_CHILDREN} children a run" if s.depth < MOST_DEPTH else f"a depth of {MOST_DEPTH}"
        return [Failed(call=call.seq, type="Delegate", message=f"No further child: {limit} is the limit.")]
    budget, left = budget_of(agent, s), usage_left(agent, s)
    if min(left.decisions, left.tokens, left.active_ms) < 2 or (budget.usd and not left.usd):
        return [Failed(call=call.seq, type="Delegate", message="What is left of the budget is too little to share.")]
    share = budget.share(s.used, task.peers.get(tool.agent, Budget()))
    paid = share.as_usage()
    return [
        ChildStarted(
            call=call.seq, child=str(uuid5(UUID(task.id), str(call.seq))), agent=tool.agent, request=tool.request,
            decisions=paid.decisions, tokens=paid.tokens, usd=paid.usd, active_ms=paid.active_ms,
        )
    ]  # fmt: skip


def budget_of(agent: Agent, s: State) -> Budget:
    """The run's budget: what the agent declares, or its birth gave it, and what was raised."""
    own = s.budget or agent.budget
    if s.extra == NOTHING:
        return own
    return own.model_copy(
        update={
            "decisions": own.decisions + s.extra.decisions,
            "tokens": own.tokens + s.extra.tokens,
            "usd": own.usd + s.extra.usd,
            "active": own.active + timedelta(milliseconds=s.extra.active_ms),
        }
    )


def _next_decision(agent: Agent, task: Task, now: datetime) -> list[Event] | Want:
    s = task.state
    stuck = _stuck(s)
    if stuck:
        return _give_over(agent, stuck)
    over = _over(agent, s, now)
    if over:
        return [over]
    if agent.prefetch and not s.prefetched:
        return Prefetch()
    if agent.steer is not None:
        call = agent.steer(task)
        if call is not None:
            return [decided(call, by="code")]
    then = coming(s)
    return [then] if isinstance(then, LimitReached) else then


def decided(call: Tool[Any], *, by: str, further: bool = False) -> Decided:
    """The decision for a call, still without its verdict."""
    return Decided.model_validate(
        {
            "tool": call.__spec__.name,
            "args": arguments_of(call),
            "kind": call.__spec__.kind,
            "by": by,
            "further": further,
        }
    )


def _give_over(agent: Agent, stuck: str) -> list[Event]:
    """Hand a run that does not get on to whom the agent names; a person who is asked may say how to go on."""
    if not isinstance(agent.on_stuck, Verdict):
        return [Stuck(reason=stuck, then=agent.on_stuck)]
    how = f"I do not get on: {shorten(stuck, 300)}. How shall I go on? {agent.on_stuck.reason}".strip()
    question = AskHuman(reason=shorten(how, 1000), target=agent.on_stuck.target, urgency="high")
    return [Stuck(reason=stuck, then="ask"), decided(question, by="code")]


def _stuck(s: State) -> str | None:
    if s.failures >= MOST_FAILURES:
        return f"{s.failures} tool failures in a row"
    if s.rejections >= MOST_REJECTIONS:
        return f"{s.rejections} unusable replies in a row"
    return stagnation(s.fingerprints)


def _over(agent: Agent, s: State, now: datetime) -> LimitReached | None:
    budget = budget_of(agent, s)
    over = budget.exhausted(s.used)
    end = _end(budget, s)
    if over is None and end and now >= end:
        over = ("deadline", now.isoformat(), end.isoformat() if s.ends_at else str(budget.deadline))
    if over is None and s.lifetime != NOTHING:
        over = budget.exhausted(s.lifetime.plus(s.used), times=LIFETIME)
    return LimitReached(dimension=over[0], used=over[1], limit=over[2]) if over else None


def _end(budget: Budget, s: State) -> datetime | None:
    """The absolute end of the run: as an operator set it, else as the budget says."""
    return s.ends_at or (s.opened_at + budget.deadline if budget.deadline and s.opened_at else None)


def usage_left(agent: Agent, s: State) -> Usage:
    """What the run's budget still holds."""
    return unused(budget_of(agent, s).as_usage(), s.used)
