"""`POST /thread/{id}/cancel`, `/pause`, `/resume`, `/retry`, `/raise` and `/settle`: what an operator does to a thread.

Each may be sent twice: what has been done already is answered as if it had been done now. A raise, which adds, is
known again by its Idempotency-Key.
"""

from __future__ import annotations

from collections.abc import Callable

from console.edge import Edge
from triggers.problem import Problem
from workers.operate import Refused

from .bodies import More, Nothing, Reason, Settle
from .look import own
from .request import Answer, Call


def cancel(held: Edge, call: Call) -> Answer:
    """The running effect finishes, no later one begins; `reason` stands in the log."""
    said = call.read(Reason)
    return _done(held, call, lambda task: held.operate.cancel(task, by=call.token.principal, reason=said.reason))


def pause(held: Edge, call: Call) -> Answer:
    """Nothing of the thread begins until it is resumed."""
    call.read(Nothing)
    return _done(held, call, held.operate.pause)


def resume(held: Edge, call: Call) -> Answer:
    """End a pause."""
    call.read(Nothing)
    return _done(held, call, held.operate.resume)


def retry(held: Edge, call: Call) -> Answer:
    """Let a quarantined or parked thread go on from where it stopped."""
    call.read(Nothing)
    return _done(held, call, lambda task: held.operate.retry(task, by=call.token.principal, key=call.key))


def raise_(held: Edge, call: Call) -> Answer:
    """Add to the run's budget, and let the thread go on where that was what it waited for."""
    more = call.read(More)
    return _done(
        held, call,
        lambda task: held.operate.raise_budget(task, by=call.token.principal, key=call.key, **dict(more)),
    )  # fmt: skip


def settle(held: Edge, call: Call) -> Answer:
    """Say what became of an effect in doubt: it happened (with its `result`), it did not, or nobody will ever tell."""
    said = call.read(Settle)
    return _done(held, call, lambda task: held.operate.settle(
        task, said.call_id, how=said.how, by=call.token.principal, result=said.result
    ))  # fmt: skip


def _done(held: Edge, call: Call, act: Callable[[str], object]) -> Answer:
    """Do it to the thread in the path; the sweep rings where something is ready now."""
    call.asks(Nothing)
    row = own(held, call)
    try:
        act(row["id"])
    except Refused as refused:
        raise Problem(refused.code, "Not now", str(refused)) from None
    return Answer(202, {"accepted": True, "thread_id": row["id"]})
