"""Fold what left the window into a summary, and open again what was folded or cut."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from twelvefold import summary
from twelvefold.controls import NextPage
from twelvefold.effects import Summarise
from twelvefold.errors import ToolError
from twelvefold.events import Event, Failed, Folded, ModelAsked, Returned
from twelvefold.peek import MOST_ROWS, peek
from twelvefold.ports import ModelReply
from twelvefold.schema import stored_call
from twelvefold.shape import Row
from twelvefold.state import OpenCall
from twelvefold.tokens import tokens_of

from .ask import unwritten
from .gateway import Answered, Question, put
from .store import log
from .work import Runtime, Work

MAX_TOKENS = 1_500
TIMEOUT_S = 60.0
TRIES = 2
"""So many times a model is asked for a summary; then it is made by rule."""


def summarise(work: Work, run: Runtime, want: Summarise) -> list[Event]:
    """The fold of everything from the boundary to `last`. It always comes to something: nobody waits for a summary."""
    s, begun = work.state, monotonic()
    found = [*log.seen(run.db, work.held.id, s.boundary, want.last), *unwritten(work)]
    rows = [row for row in found if s.boundary <= row.seq <= want.last]
    notes = str(work.task.read(s.view.folded).get("text", "")) if s.view.folded else ""
    asked, text, failed = _asked(work, run, notes, rows)
    folded = Folded(
        first=s.boundary, last=want.last, text=text or summary.mechanical(notes, rows), hash=summary.hash_of(rows),
        by="model" if text else "rule", failed=failed, ms=0 if asked else int((monotonic() - begun) * 1000),
    )  # fmt: skip
    return [*asked, folded]


def _asked(work: Work, run: Runtime, notes: str, rows: Sequence[Row]) -> tuple[list[ModelAsked], str | None, int]:
    """The calls of a model, what the last of them said, and how many could not be used. Deaths count as such too."""
    asked: list[ModelAsked] = []
    failed = max(0, work.held.attempts - 1)
    user = str(run.settings.directory.masked(summary.question(notes, rows)))
    while failed < TRIES and not run.scripted:
        found = _put(work, run, user)
        if found is not None:
            reply, event = found
            asked.append(event)
            text = summary.usable(reply.text) if reply.finish == "stop" else None
            if text:
                return asked, text, failed
        failed += 1
    return asked, None, failed


def _put(work: Work, run: Runtime, user: str) -> tuple[ModelReply, ModelAsked] | None:
    tokens = tokens_of(summary.SYSTEM) + tokens_of(user)
    found = put(work, run, Question(
        "summarise", summary.SYSTEM, user, (), tokens, most=MAX_TOKENS, timeout=TIMEOUT_S
    ))  # fmt: skip
    if isinstance(found, Answered):
        return found.reply, found.asked
    run.log.warning("summary_failed", task=work.held.id, agent=work.agent.name, why=type(found).__name__)
    return None


def open_page(work: Work, run: Runtime, call: OpenCall) -> Event:
    """What NextPage asks for, as the result of its call."""
    wanted = stored_call(work.agent.menu, work.agent.renamed, call.tool, call.args)
    assert isinstance(wanted, NextPage), "a page is wanted by NextPage"
    last = min(call.seq - 1, wanted.event + MOST_ROWS)
    rows = [*log.seen(run.db, work.held.id, wanted.event, last), *unwritten(work)]
    try:
        text = peek([row for row in rows if wanted.event <= row.seq <= last], wanted.event, wanted.page)
    except ToolError as error:
        return Failed(
            call=call.seq, type="NextPage", message=str(error), affected=error.affected, suggestion=error.suggestion
        )
    return Returned(call=call.seq, shown=text)
