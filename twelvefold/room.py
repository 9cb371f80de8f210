"""Room in the window: what is noted of each event while it is folded, and what gives way when there is too little.

The order: results of a Read that was repeated, errors that are resolved, then everything but the last turns and results
is folded into a summary. Between two of these the window only grows, so that a provider's cache of its beginning
holds; none of them happens for less than it is worth.
"""

from __future__ import annotations

from typing import Any

from .canonical import sha256
from .controls import NextPage
from .effects import AskModel, Summarise
from .events import Decided, Event, Failed, Folded, LimitReached, ModelAsked, Rejected, Resumed, Returned
from .state import OpenCall, State, View
from .tokens import tokens_of

EASY_TOKENS = 10_000
"""Above this something gives way."""
MOST_TOKENS = 20_000
"""Over this, even after everything gave way, the task is parked."""
WORTH_TOKENS = 4_000
"""So much has to be won, or the window is not touched."""
SHOWN_TOKENS = 2_000
"""The most of one event that is shown; the rest has pages."""
KEPT_TURNS, KEPT_RESULTS = 3, 5
KEPT_ROWS = 8
"""So many of the newest events stay where a flood of them came after the last turn."""
MOST_ROWS = 64
READ_CHARS = 20_000
"""More of an event's data than this is not counted: it has more than what is shown in any case."""
_ESCAPED = ("<", ">", "&", '"', "\\")


def grown(s: State, seq: int, event: Event) -> tuple[tuple[int, int], ...]:
    """The rows (seq, tokens) of what is in the window, with the event's. The oldest are put together when there are too
    many, so that their sum stays true.
    """
    rows = (*s.window, (seq, _shown(event)))
    if len(rows) > MOST_ROWS:
        (first, some), (_, more) = rows[0], rows[1]
        rows = ((first, some + more), *rows[2:])
    return rows


def _shown(event: Event) -> int:
    data = event.data
    if len(data) > READ_CHARS:
        return SHOWN_TOKENS
    return min(tokens_of(data) + sum(data.count(sign) for sign in _ESCAPED), SHOWN_TOKENS)


def noted(s: State, seq: int, event: Event) -> View:  # noqa: C901 - one arm an event
    """The view after an event; `s` is the state before it."""
    v = s.view
    match event:
        case ModelAsked() if event.boundary:
            change = {"eased": event.eased, "prefix": event.prefix, "breaks": v.breaks + event.broke, "overflows": 0}
            return _from(v.model_copy(update=change), event.boundary)
        case Folded():
            return _from(v.model_copy(update={"folded": seq, "squeeze": False}), event.last + 1)
        case Decided():
            turns = v.turns if event.further else (*v.turns, seq)[-KEPT_TURNS:]
            return _resolved(v, "", seq, turns=turns)
        case Rejected():
            return _more(v, turns=(*v.turns, seq)[-KEPT_TURNS:], errors=(*v.errors, ("", seq)))
        case Failed(call=None, type="context"):
            return _more(v, squeeze=True, overflows=v.overflows + 1)
        case Failed(call=None):
            return _more(v, errors=(*v.errors, ("", seq)))
        case Failed() if s.call is not None:
            return _more(v, errors=(*v.errors, (s.call.tool, seq)), results=_results(v, s.call))
        case Returned() if s.call is not None:
            paged = {"paged": seq} if _shown(event) >= SHOWN_TOKENS else {}
            return _superseded(_resolved(v, s.call.tool, seq, results=_results(v, s.call), **paged), s.call, seq)
        case Resumed(verb="retry") if s.reason == "context":
            return _more(v, squeeze=True)
        case _ if not v.paged and len(event.data) > SHOWN_TOKENS and _shown(event) >= SHOWN_TOKENS:
            return _more(v, paged=seq)
    return v


def _more(v: View, **change: Any) -> View:
    return v.model_copy(update={k: x[-MOST_ROWS:] if isinstance(x, tuple) else x for k, x in change.items()})


def _results(v: View, call: OpenCall) -> tuple[int, ...]:
    return (*v.results, call.seq)[-KEPT_RESULTS:]


def _resolved(v: View, tool: str, by: int, **change: Any) -> View:
    """The errors of a tool, or of the model ("") give way to what succeeded after them."""
    over = tuple((seq, "resolved", by) for name, seq in v.errors if name == tool)
    if over:
        change |= {"errors": tuple(row for row in v.errors if row[0] != tool), "spare": (*v.spare, *over)}
    return _more(v, **change)


def _superseded(v: View, call: OpenCall, by: int) -> View:
    """The older result of the same Read with the same arguments gives way to the newer."""
    if call.kind != "read" and call.tool != NextPage.__spec__.name:
        return v
    mark = sha256(call.tool, call.args)[:8]
    older = tuple((seq, "superseded", by) for name, seq in v.looks if name == mark)
    looks = (*(row for row in v.looks if row[0] != mark), (mark, by))
    return _more(v, looks=looks, spare=(*v.spare, *older))


def _from(v: View, boundary: int) -> View:
    """Without what left the window."""
    return v.model_copy(
        update={
            "turns": tuple(seq for seq in v.turns if seq >= boundary),
            "results": tuple(seq for seq in v.results if seq >= boundary),
            "looks": tuple(row for row in v.looks if row[1] >= boundary),
            "errors": tuple(row for row in v.errors if row[1] >= boundary),
            "spare": tuple(row for row in v.spare if row[0] >= boundary),
        }
    )


def given(v: View, eased: tuple[int, int]) -> dict[int, tuple[str, int]]:
    """What is not shown, by seq: the rule, and the event it gave way to."""
    below = {"superseded": eased[0], "resolved": eased[1]}
    return {seq: (rule, by) for seq, rule, by in v.spare if by < below[rule]}


def coming(s: State) -> AskModel | Summarise | LimitReached:
    """The next question with its window, or what has to give way before it can be asked."""
    v, now = s.view, s.seq + 1
    rows = [row for row in s.window if row[0] >= s.boundary] or [(s.boundary, 0)]
    full = len(rows) >= MOST_ROWS or v.squeeze
    for eased in (v.eased, (now, v.eased[1]), (now, now)):
        if not full and _tokens(s, rows, eased) <= EASY_TOKENS:
            return AskModel(s.boundary, eased)
    total, least = _tokens(s, rows, v.eased), _tokens(s, rows, (now, now))
    start = _keep_from(s, rows)
    won = sum(tokens for seq, tokens in rows if seq < start)
    if start > s.boundary and (won >= WORTH_TOKENS or full or least > MOST_TOKENS):
        return Summarise(start - 1)
    if least > MOST_TOKENS or v.squeeze:
        return LimitReached(dimension="context", used=str(least), limit=str(MOST_TOKENS))
    eased = (now, now) if total > MOST_TOKENS or total - least >= WORTH_TOKENS else v.eased
    return AskModel(s.boundary, eased)


def _tokens(s: State, rows: list[tuple[int, int]], eased: tuple[int, int]) -> int:
    sizes = dict(rows)
    return sum(sizes.values()) - sum(sizes.get(seq, 0) for seq in given(s.view, eased))


def _keep_from(s: State, rows: list[tuple[int, int]]) -> int:
    """The first event that stays whole: that of the third turn from the end, or of the call whose result is the fifth.
    Where a flood came after them, or an operator said so, they give way as well, all but the newest.
    """
    if s.view.squeeze:
        return _fitting(rows)
    held = [s.call.seq] if s.call is not None else []
    marks = [*s.view.turns, *s.view.results, *held]
    newest = min([rows[-KEPT_ROWS:][0][0], *held])
    start = min(marks, default=newest)
    left = sum(tokens for seq, tokens in rows if seq >= start)
    return newest if left > EASY_TOKENS and max(marks, default=0) < newest else start


def _fitting(rows: list[tuple[int, int]]) -> int:
    total, most = 0, min(EASY_TOKENS, sum(tokens for _, tokens in rows)) // 2
    for seq, tokens in reversed(rows):
        total += tokens
        if total > most:
            return min(seq + 1, rows[-1][0])
    return rows[0][0]
