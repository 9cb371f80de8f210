"""The relay: one outbox row to its channel, sent without a transaction open, settled by its claim token.

What certainly did not go out is tried again later; nobody sleeps for it. What may have gone out is looked for where the
channel can tell, and is `unknown` elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic
from uuid import uuid4

from twelvefold.agent import Ended
from twelvefold.ports import Channel, Finds, Letter, NotSent, Paced, Patient, PerhapsSent, Receipt

from .chances import patiently
from .fallbacks import fallback
from .intake import Intake, put
from .outgoing import FINISHED, TASK_CHANNEL
from .store import inbox, outbox, paces
from .store.inbox import Entry
from .store.outbox import Became, Taken
from .telemetry import kind_of
from .work import Runtime
from .writing import Pointless, written

SEND_S = 60.0
STALLED_S = 5.0
"""Who needed so long to begin might be overtaken before the end: SEND_S covers this and the longest way out."""
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 3600.0
ATTEMPTS = 56
"""About two days."""


def deliver(letter_id: str, run: Runtime, channels: Mapping[str, Channel]) -> str:
    """Push one row. Returns its new state, or `nothing` when it was not there to be taken."""
    began, claim = monotonic(), uuid4()
    again = [name for name, channel in channels.items() if isinstance(channel, Finds)]
    taken = patiently(run, lambda: outbox.take(run.db, letter_id, claim, SEND_S, again))
    if taken is None:
        return "nothing"
    if taken.channel == TASK_CHANNEL:
        return _to_task(taken, run)
    channel = channels.get(taken.channel)
    if channel is None:
        return _dead(run, taken, NotSent(f"no channel named {taken.channel}", retry=False))
    wait = _must_wait(run, taken, channel)
    if wait == inf:
        return _dead(run, taken, NotSent("its destination is closed; to open it: twelvefold outbox open", retry=False))
    if wait is not None:
        return _settle(run, taken, Became("pending", wait=wait, put_back=True))
    try:
        letter = written(taken, run)
    except NotSent as error:
        return _not_sent(run, taken, error)
    except Exception as error:  # whatever it is, nothing has gone out
        return _not_sent(run, taken, NotSent(f"the letter could not be written: {kind_of(error)}", retry=True))
    if monotonic() - began > STALLED_S:
        return _not_sent(run, taken, NotSent("the relay stood still after it had taken the letter", retry=True))
    return _push(run, taken, channel, letter)


def _must_wait(run: Runtime, taken: Taken, channel: Channel) -> float | None:
    """The seconds until its destination takes another letter; None when it takes this one now."""
    if not isinstance(channel, Paced):
        return None
    destination, gap = channel.pace(taken.recipient)
    wait = patiently(run, lambda: paces.slot(run.db, taken.channel, destination, gap))
    return None if wait is None else wait + run.dice.uniform(0, max(gap, 0.1))


def _push(run: Runtime, taken: Taken, channel: Channel, letter: Letter) -> str:
    try:
        receipt = _found(taken, channel, letter) or channel.push(letter)
    except NotSent as error:
        return _not_sent(run, taken, error, channel)
    except (PerhapsSent, Exception) as error:
        return _in_doubt(run, taken, channel, error)
    return _settle(run, taken, Became("sent", receipt=receipt.reference, error="; ".join(receipt.refused) or None))


def _found(taken: Taken, channel: Channel, letter: Letter) -> Receipt | None:
    """The receipt of a letter whose earlier attempt went out after all."""
    return channel.find(letter) if taken.doubtful and isinstance(channel, Finds) else None


def _in_doubt(run: Runtime, taken: Taken, channel: Channel, error: Exception) -> str:
    """It may have gone out: it is looked for at the next attempt, or nobody can tell."""
    wait = _wait(taken, channel)
    if isinstance(channel, Finds) and wait is not None:
        run.log.warning("send_in_doubt", letter=taken.id, channel=taken.channel, error=kind_of(error))
        return _settle(run, taken, Became("pending", error="it may have gone out", wait=wait, doubtful=True))
    run.log.error("send_unknown", letter=taken.id, channel=taken.channel, error=kind_of(error))
    return _settle(run, taken, Became("unknown", error="the answer was lost; it may have gone out"))


def _not_sent(run: Runtime, taken: Taken, error: NotSent, channel: Channel | None = None) -> str:
    _hold(run, taken, error, channel)
    wait = _wait(taken, channel)
    if not error.retry or wait is None:
        return _dead(run, taken, error)
    run.log.warning("not_sent", letter=taken.id, channel=taken.channel, attempt=taken.attempts)
    wait = max(error.retry_after or 0, wait)
    return _settle(run, taken, Became("pending", error=error.reason, wait=wait, doubtful=error.partly))


def _wait(taken: Taken, channel: Channel | None) -> float | None:
    """The seconds until the next attempt; None when there is none."""
    if isinstance(channel, Patient):
        return channel.waits[taken.attempts - 1] if taken.attempts <= len(channel.waits) else None
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (taken.attempts - 1)) if taken.attempts < ATTEMPTS else None


def _hold(run: Runtime, taken: Taken, error: NotSent, channel: Channel | None) -> None:
    """Let others wait too, where it was said that they have to."""
    if error.holds == "letter" or not isinstance(channel, Paced):
        return
    destination = channel.pace(taken.recipient)[0]

    def hold() -> None:
        with run.db.connection() as connection:
            if error.holds == "closed":
                paces.close(connection, taken.channel, destination)
            else:
                whom = "*" if error.holds == "channel" else destination
                paces.hold(connection, taken.channel, whom, error.retry_after or 0)

    patiently(run, hold)


def _dead(run: Runtime, taken: Taken, error: NotSent) -> str:
    """Nobody tries it any more: operators are told, and whoever stands in for the recipient gets it."""
    if isinstance(error, Pointless):
        return _settle(run, taken, Became("failed", error=error.reason))
    instead = fallback(run.settings.fallbacks, taken.channel, taken.recipient, taken.payload)

    def settle() -> bool:
        with run.db.transaction() as connection:
            ours = outbox.settle(connection, taken, Became("failed", error=error.reason))
            if ours and instead is not None:
                outbox.reroute(connection, taken, *instead)
            return ours

    run.log.error("letter_dead", letter=taken.id, channel=taken.channel, attempt=taken.attempts,
                  instead=None if instead is None else instead[0])  # fmt: skip
    return "failed" if patiently(run, settle) else "lost"


def _settle(run: Runtime, taken: Taken, became: Became) -> str:
    def settle() -> bool:
        with run.db.connection() as connection:
            return outbox.settle(connection, taken, became)

    # what is known now nobody would know later: a database that is away for a while is waited for
    return became.state if patiently(run, settle) else "lost"


def _to_task(taken: Taken, run: Runtime) -> str:
    """News for another task: the arrival and the settled row are one commit, and only one task row is touched."""
    p = taken.payload
    if p["kind"] == FINISHED:
        return _to_follower(taken, run)
    entry = Entry(
        tenant=taken.tenant, source="task", key=taken.key, kind=p["kind"], task_id=taken.recipient,
        payload=p.get("data"), wait_key=p.get("wait_key"), proof=p.get("proof"),
    )  # fmt: skip
    with run.db.transaction() as connection:
        if p["kind"] == "cancel":
            inbox.ask_cancel(connection, taken.recipient)
        verdict = put(connection, entry, person=False)
        outbox.settle(connection, taken, Became("sent", receipt=verdict.outcome))
    return "sent"


def _to_follower(taken: Taken, run: Runtime) -> str:
    """The end of a run opens a task of whoever follows it. Its key makes that once, whoever repeats it."""
    intake, ended = Intake(run.db, run.registry, run.log), taken.payload["data"]
    entry = Entry(
        tenant=taken.tenant, source=TASK_CHANNEL, key=taken.key, kind="message", type=f"finished {ended['agent']}",
        proof=taken.payload["proof"],
    )  # fmt: skip
    follower = next(
        (each for each in run.registry.followers(ended["agent"]) if each[0].agent.name == taken.recipient), None
    )
    if follower is None:
        verdict = intake.ignore(entry, "no_binding")
    else:
        loaded, binding = follower
        verdict = intake.read(entry, loaded, binding.read, Ended.model_validate(ended))
    return _settle(run, taken, Became("sent", receipt=verdict.outcome))
