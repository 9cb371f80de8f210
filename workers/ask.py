"""Ask the model for one decision: window, request, reply, and what the reply comes to."""

from __future__ import annotations

from collections.abc import Callable

from twelvefold.decide import decided
from twelvefold.effects import AskModel
from twelvefold.errors import Rejection
from twelvefold.events import Event, Failed, Rejected
from twelvefold.policy import vouched
from twelvefold.replies import read_reply
from twelvefold.shape import Row
from twelvefold.state import OpenCall
from twelvefold.text import clean
from twelvefold.tool import Tool
from twelvefold.window import UNSEEN_TYPES, build

from .gateway import Answered, Question, put
from .store import log
from .work import Runtime, Work


def ask_model(work: Work, run: Runtime, want: AskModel, read: Callable[[OpenCall], list[Event]]) -> list[Event]:
    """The events of one model call: asked and decided, asked and rejected, or failed with a time to try again."""
    s = work.state
    rows = [*log.window(run.db, work.held.id, want.boundary, s.opened, s.view.folded), *unwritten(work)]
    parts = {part.name: part.text for part in work.loaded.parts} or None
    window = build(work.agent, work.task, work.loaded.prompt, rows, want, run.settings.directory, parts)
    found = put(work, run, Question(
        "decide", window.system, window.user, window.menu, window.receipt["total"], window.receipt, want.boundary
    ))  # fmt: skip
    if not isinstance(found, Answered):
        return [_shorter(work, found)]
    broke = s.view.prefix not in ("", window.prefix)
    asked = found.asked.model_copy(update={"eased": want.eased, "prefix": window.prefix, "broke": broke})
    try:
        calls = read_reply(work.agent, found.reply)
    except Rejection as error:
        return [asked, Rejected(kind=error.kind, text=clean(str(error)), tool=error.tool)]
    if len(calls) == 1:
        return [asked, decided(calls[0], by="model")]
    return [asked, *_several(work, calls, read)]


def _shorter(work: Work, found: Event) -> Event:
    """What the provider finds too long is folded further and asked once more; a second time is an operator's."""
    if isinstance(found, Failed) and found.type == "context" and not work.state.view.overflows:
        return found.model_copy(update={"then": "retry"})
    return found


def unwritten(work: Work) -> list[Row]:
    """Events of this very step, absorbed but not yet in the log."""
    return [Row(r.seq, type(r.event).__name__, r.event.version, r.event.data)
            for r in work.place.events if type(r.event).__name__ not in UNSEEN_TYPES]  # fmt: skip


def _several(work: Work, calls: list[Tool[object]], read: Callable[[OpenCall], list[Event]]) -> list[Event]:
    """Several READ calls of one reply, in order inside the step; the first that may not run unasked, or that no model
    can mend, ends the row.
    """
    happened: list[Event] = []
    seq = work.state.seq + 1
    for number, call in enumerate(calls):
        seq += 1
        decision = vouched(work.agent, work.task, decided(call, by="model", further=number > 0), seq)
        happened.append(decision)
        if isinstance(decision, Rejected) or decision.verdict != "auto":
            break
        row = OpenCall(seq=seq, tool=decision.tool, args=decision.args, kind="read", phase="approved")
        found = read(row)
        happened += found
        seq += 1
        if len(found) > 1:
            break
    return happened
