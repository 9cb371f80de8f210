"""What a commit sends: questions to people, results to their destinations, news to parents and children. Each has one
stable key. A letter holds what is said, and nothing of how to reach us: the relay makes links when it sends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from twelvefold.agent import Ended
from twelvefold.bindings import REPLY, Destination
from twelvefold.decide import budget_of
from twelvefold.events import ApprovalAsked, ApprovalMoved, ChildReturned, ChildStarted, Finished
from twelvefold.inbox import UNPROVEN
from twelvefold.markup import to_yaml
from twelvefold.record import Recorded
from twelvefold.state import Child as ChildRef
from twelvefold.state import OpenCall, State, unused
from twelvefold.verdict import Verdict, people

from .card import Card
from .origin import Place, origin
from .question import Asking
from .store.commits import Child, Letter
from .telemetry import kind_of
from .work import Runtime, Work

TASK_CHANNEL = "task"
SLACK_DOMAIN = "slack"
FINISHED = "finished"
"""The kind of news that is for an agent, not for a task of it: a run that it follows has ended."""


def letters(work: Work, run: Runtime) -> list[Letter]:
    """The outbox rows of the step's events."""
    found: list[Letter] = []
    for recorded in work.place.events:
        if isinstance(recorded.event, ApprovalAsked):
            found += _questions(work, run, recorded, recorded.event)
        elif isinstance(recorded.event, ApprovalMoved) and recorded.event.to in ("reminded", "escalated", "explained"):
            found += _again(work, run, recorded, recorded.event)
        elif isinstance(recorded.event, Finished):
            found += _results(work, run, recorded, recorded.event)
            found += _to_parent(work, recorded, recorded.event)
            found += _to_followers(work, run, recorded, recorded.event)
            found += [_cancel(work, recorded, child) for child in work.state.children]
    return found


def _questions(work: Work, run: Runtime, recorded: Recorded, event: ApprovalAsked) -> list[Letter]:
    """One letter to each person whom the rule names. A question to nobody who has an address is told in the log."""
    call = work.state.call
    if call is None or call.seq != event.call or call.asks is None:
        return []  # the question was over again in this very step
    if event.kind == "question":
        asks = call.asks.among(run.settings.directory)
        return _to_each(work, recorded, asks.target, _asking(work, recorded, call, asks))
    asks = call.asks.among(run.settings.directory)
    return _to_each(work, recorded, asks.target, _card(work, recorded, call, asks))


def _again(work: Work, run: Runtime, recorded: Recorded, event: ApprovalMoved) -> list[Letter]:
    """The same question once more: to the same people, or to those who are asked when these do not answer."""
    call = work.state.call
    if call is None or call.asks is None:
        return []
    asks = call.asks.among(run.settings.directory)
    write = _asking if call.is_question else _card
    first = {"reminded": "Reminder: ", "explained": "Explained: "}.get(event.to)
    if first is not None:
        return _to_each(work, recorded, asks.target, write(work, recorded, call, asks, first))
    nobody = "Nobody has answered yet: " if call.is_question else "Nobody has decided yet: "
    return _to_each(work, recorded, asks.escalate_to, write(work, recorded, call, asks, nobody, asks.escalate_to))


def _card(
    work: Work, recorded: Recorded, call: OpenCall, asks: Verdict, first: str = "", escalated: str = ""
) -> dict[str, Any]:
    assert call.due is not None, "the call is asked about"
    card = Card(
        agent=work.agent.name, about=work.state.about, task=work.held.id, call=call.seq, asked=call.asked,
        tool=call.tool, args=call.args, says=call.says or asks.reason, target=asks.target, risk=asks.risk,
        deadline=call.due, digest=call.digest, quorum=asks.quorum, all_of=asks.all_of, four_eyes=asks.four_eyes,
        editor=call.editor, tainted=asks.tainted, escalated=escalated, at_expiry=asks.at_expiry,
        preview=work.task.read(call.previewed).get("shown") if call.previewed else None,
    )  # fmt: skip
    return {"subject": first + card.title, "card": card.model_dump(mode="json"), "at": recorded.at.isoformat()}


def _asking(
    work: Work, recorded: Recorded, call: OpenCall, asks: Verdict, first: str = "", escalated: str = ""
) -> dict[str, Any]:
    assert call.due is not None, "somebody is asked"
    asking = Asking(
        agent=work.agent.name, about=work.state.about, task=work.held.id, call=call.seq, asked=call.asked,
        args=call.args, target=asks.target, deadline=call.due, escalated=escalated,
    )  # fmt: skip
    return {"subject": first + asking.title, "question": asking.model_dump(mode="json"), "at": recorded.at.isoformat()}


def _to_each(work: Work, recorded: Recorded, target: str, payload: dict[str, Any]) -> list[Letter]:
    asked = [way_to(address) for address in people(target)]
    return [
        _letter(work, recorded, channel, recipient, payload)
        for channel, recipient in asked or [("log", target or "operators")]
    ]


def way_to(address: str) -> tuple[str, str]:
    """Channel and recipient of an address: `u012@slack` is a person or a channel there."""
    name, _, domain = address.rpartition("@")
    return ("slack", name.upper()) if domain == SLACK_DOMAIN else ("email", address)


def letter_key(task_id: str, seq: int, channel: str, recipient: str) -> str:
    """The key of a letter: which event of which task it tells to whom."""
    return f"{task_id}:{seq}:{channel}:{recipient}"


def _results(work: Work, run: Runtime, recorded: Recorded, event: Finished) -> list[Letter]:
    if work.state.parent:
        return []
    return [
        _letter(work, recorded, channel, recipient, {
            "subject": _subject(work, run, event),
            "text": _text(work, event),
            "result": _result(work, event),
            "at": recorded.at.isoformat(), **more,
        })
        for (channel, recipient), more in _destinations(work, run, event).items()
    ]  # fmt: skip


def _destinations(work: Work, run: Runtime, event: Finished) -> dict[tuple[str, str], dict[str, Any]]:
    """Channel and recipient of each copy of a result, once each, and what its letter has besides. It is a digest where
    all that ask for it say so.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for d in work.state.delivery or work.agent.delivery:
        if d.when not in ("always", _came_to(event)):
            continue
        for place in _places(work, run, d):
            before = found.get((place.channel, place.recipient))
            digest = d.digest and (before is None or "digest" in before)
            known = {name: value for name, value in (before or {}).items() if name != "digest"}
            found[place.channel, place.recipient] = known | place.more | ({"digest": True} if digest else {})
    return found


def _places(work: Work, run: Runtime, d: Destination) -> list[Place]:
    """Where a destination leads; names of the directory become addresses here, and a reply the place that it is for."""
    if d.channel == REPLY:
        place = origin(work, run)
        return [] if place is None else [place]
    if d.channel == "email":
        return [Place("email", address) for address in run.settings.directory.addresses(d.recipient)]
    return [Place(d.channel, d.recipient)]


def _came_to(event: Finished) -> str:
    """The end as destinations name it: a run that found nothing to do is done, but has no result to send."""
    return "" if event.reason == "nothing_to_do" else event.status


def _subject(work: Work, run: Runtime, event: Finished) -> str:
    if work.agent.subject is not None and event.status == "done" and event.reason != "nothing_to_do":
        try:
            return work.agent.subject(work.agent.returns.model_validate(event.outcome))
        except Exception as error:  # a result is not held up by its subject line
            run.log.error("subject_broke", task=work.held.id, agent=work.agent.name, error=kind_of(error))
    return f"{work.agent.name}: {event.reason or event.status}"


def _text(work: Work, event: Finished) -> str:
    body = to_yaml(event.outcome) if event.outcome is not None else f"{event.reason or event.status}\n"
    about = f" about {work.state.about}" if work.state.about else ""
    return f"{body}\n-- \n{work.agent.name}{about}, task {work.held.id}\n"


def _result(work: Work, event: Finished) -> dict[str, Any]:
    """What the letter is rendered from when it goes out."""
    s = work.state
    return {
        "status": event.status, "reason": event.reason, "outcome": event.outcome, "opened": s.opened,
        "about": s.about, "agent": work.agent.name, "used": s.used.model_dump(mode="json"),
    }  # fmt: skip


def _to_parent(work: Work, recorded: Recorded, event: Finished) -> list[Letter]:
    s = work.state
    if not s.parent:
        return []
    left = unused(budget_of(work.agent, s).as_usage(), s.used)
    news = ChildReturned(
        child=work.held.id, run=s.parent_run, status=event.status, result=event.outcome, decisions=left.decisions,
        tokens=left.tokens, usd=left.usd, active_ms=left.active_ms, tainted=bool(s.tainted),
    )  # fmt: skip
    payload = {"kind": "child", "data": news.model_dump(mode="json")}
    return [_letter(work, recorded, TASK_CHANNEL, s.parent, payload)]


def _to_followers(work: Work, run: Runtime, recorded: Recorded, event: Finished) -> list[Letter]:
    """The agents that follow this one each get a task of it: one letter, so one task, for each run and follower."""
    ended = Ended(
        agent=work.agent.name, task=work.held.id, status=event.status, reason=event.reason, outcome=event.outcome,
        about=work.state.about,
    )  # fmt: skip
    payload = {
        "kind": FINISHED, "data": ended.model_dump(mode="json"), "proof": UNPROVEN if work.state.tainted else "task",
    }  # fmt: skip
    return [
        _letter(work, recorded, TASK_CHANNEL, follower.agent.name, payload)
        for follower, binding in run.registry.followers(work.agent.name)
        if binding.when in ("always", _came_to(event))
    ]


def _cancel(work: Work, recorded: Recorded, child: ChildRef) -> Letter:
    payload = {"kind": "cancel", "data": {"by": f"parent {work.held.id}", "reason": "the parent ended"}}
    return _letter(work, recorded, TASK_CHANNEL, child.id, payload)


def _letter(work: Work, recorded: Recorded, channel: str, recipient: str, payload: dict[str, Any]) -> Letter:
    key = letter_key(work.held.id, recorded.seq, channel, recipient)
    return Letter(str(uuid5(NAMESPACE_OID, key)), recorded.seq, channel, recipient, key, payload)


def children(work: Work) -> list[Child]:
    """The tasks that this step gives birth to."""
    return [_child(work, r.event) for r in work.place.events if isinstance(r.event, ChildStarted)]


def _child(work: Work, event: ChildStarted) -> Child:
    s = work.state
    budget = work.agent.budget.model_copy(
        update={"decisions": event.decisions, "tokens": event.tokens, "usd": event.usd,
                "active": timedelta(milliseconds=event.active_ms), "deadline": None}
    )  # fmt: skip
    state = State(
        id=event.child, tenant=work.held.tenant, budget=budget, parent=work.held.id, parent_run=s.run,
        depth=s.depth + 1, tainted=1 if s.tainted else 0,
    )  # fmt: skip
    return Child(event.child, event.agent, state, {"text": event.request, "subject": "", "sender": work.agent.name})
