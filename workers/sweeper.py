"""The sweep: rings what is ready, wakes what is due, frees what the dead held. Any number of processes may run it.

The table is the queue; a lane holds a window of it. Row leases keep two sweepers from doing the same work at the same
time; doing it twice would be harmless.
"""

from __future__ import annotations

from threading import Lock

from .intake import Intake
from .lanes import LANES
from .schedules import fire
from .store import alive, rings, spend, sweeps
from .work import Runtime

SURE_BEATS = 5
"""So many heartbeats of its own must have succeeded before a sweeper calls others dead."""


_ringing = Lock()
"""Sweep and feed of one process must not both fill the same room."""


def sweep(run: Runtime) -> dict[str, int]:
    """One sweep; what it did, as counts."""
    s = run.settings
    if served := alive.windows(run.db, s.dead_after):  # none: after an outage, before anybody beats again
        run.lanes.windows.update(dict.fromkeys(LANES, 0) | served)
    opened = fire(Intake(run.db, run.registry, run.log), run.log)
    fired = {"fired": opened} if opened else {}
    if not alive.lease(run.db, "sweep", run.worker, 3 * s.sweep + 2):
        return fired
    done = fired | {"due": sweeps.make_due(run.db), "set_aside": sweeps.set_aside(run.db)}
    if run.pulse.steady(SURE_BEATS):
        patience = s.dead_after / 2 - s.heartbeat  # what is left when one's own heartbeat is as old as it may be
        done["freed"] = alive.free_dead(run.db, s.dead_after, patience, lambda: run.pulse.steady(SURE_BEATS))
        if done["freed"]:
            run.log.warning("claims_freed", count=done["freed"])
    done["unknown"] = sweeps.give_up(run.db)
    if done["unknown"]:
        run.log.error("letters_unknown", count=done["unknown"])
    done["rolled_up"] = spend.roll_up(run.db)
    done["more"] = int(ring_steps(run))
    room = _room(run, "delivery")
    done["delivery"] = run.lanes.ring("delivery", sweeps.letters(run.db, room, s.renudge))
    return done


def ring_steps(run: Runtime) -> bool:
    """Ring ready tasks as far as their lanes have room; whether a lane was filled, so that there may be more."""
    filled = False
    for lane in ("answers", "steps"):
        with _ringing:
            into = "steps" if lane == "answers" and not run.lanes.windows[lane] else lane  # nobody serves it
            room = _room(run, into)
            bells = _ready(run, lane, room)
            pushed = run.lanes.ring(into, bells)
        sweeps.unring(run.db, [task_id for task_id, _ in bells[pushed:]])
        filled = filled or 0 < room <= len(bells)
    return filled


def _ready(run: Runtime, lane: str, room: int) -> list[tuple[str, str]]:
    """Whom to ring; where nothing is limited nothing of limits is asked."""
    flows, tenant, renudge = run.registry.flows, run.settings.tenant_concurrency, run.settings.renudge
    if not flows.any and tenant is None:
        return sweeps.ring(run.db, lane, room, renudge)
    return rings.ring(run.db, lane, room, renudge, flows.rules, tenant)


def _room(run: Runtime, lane: str) -> int:
    """How many more messages the lane takes; 0 while the broker does not answer."""
    length = run.lanes.length(lane)
    return 0 if length is None else run.lanes.windows[lane] - length
