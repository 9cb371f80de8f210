"""Everything the API can do, as one table: routes and their description are both made of it, so neither can lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from workers.store.tokens import ROLES, Role

from . import batch, grants, happen, look, reached, saw, schedules, sent, switches, verbs
from .bodies import (
    Approval,
    Backfill,
    Batch,
    Edit,
    Filters,
    Happened,
    Launch,
    Lift,
    More,
    Named,
    New,
    Nothing,
    Page,
    Reached,
    Reason,
    Response,
    Settle,
    Throw,
)
from .gate import Handler
from .launch import launch
from .respond import respond, respond_to


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path: who may, what may be in the query and in the body, and what does it. `turn`: a caller may
    wait for what follows; `key`: an Idempotency-Key makes a repeat the same request; `stream`: it may be followed.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    roles: tuple[Role, ...]
    query: type[BaseModel] = Nothing
    bodies: tuple[type[BaseModel], ...] = ()
    turn: bool = False
    key: bool = False
    stream: bool = False

    @property
    def says(self) -> str:
        """What it does, in the words of its handler."""
        return " ".join((self.handler.__doc__ or "").split())


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/thread", launch, ("requester",), bodies=(Launch,), turn=True, key=True),
    Operation("GET", "/thread", look.many, ROLES, query=Filters),
    Operation("GET", "/thread/{id}", look.thread, ROLES),
    Operation("GET", "/thread/{id}/events", look.events, ROLES, query=Page, stream=True),
    Operation("GET", "/thread/{id}/receipt/{seq}", saw.receipt, ROLES),
    Operation("GET", "/thread/{id}/seen/{seq}", saw.seen, ROLES),
    Operation(
        "POST", "/thread/{id}/response", respond, ("requester", "approver"), bodies=(Response, Approval), turn=True,
        key=True,
    ),
    Operation(
        "POST", "/thread/{id}/response/{call_id}", respond_to, ("requester", "approver"), bodies=(Response, Approval),
        turn=True, key=True,
    ),
    Operation("POST", "/thread/{id}/cancel", verbs.cancel, ("operator",), bodies=(Reason,)),
    Operation("POST", "/thread/{id}/pause", verbs.pause, ("operator",), bodies=(Nothing,)),
    Operation("POST", "/thread/{id}/resume", verbs.resume, ("operator",), bodies=(Nothing,)),
    Operation("POST", "/thread/{id}/retry", verbs.retry, ("operator",), bodies=(Nothing,), key=True),
    Operation("POST", "/thread/{id}/raise", verbs.raise_, ("operator",), bodies=(More,), key=True),
    Operation("POST", "/thread/{id}/settle", verbs.settle, ("operator",), bodies=(Settle,)),
    Operation(
        "GET", "/thread/{id}/prompt/{seq}", sent.prompt, ("reader", "requester", "approver", "operator")
    ),
    Operation("GET", "/approvals", look.approvals, ROLES),
    Operation("POST", "/approvals", batch.decide, ("approver",), bodies=(Batch,)),
    Operation("GET", "/grants", grants.listed, ROLES),
    Operation("POST", "/grants/{id}/revoke", grants.revoke, ("approver", "operator"), bodies=(Nothing,)),
    Operation("POST", "/events", happen.happen, ("requester",), bodies=(Happened,), key=True),
    Operation("GET", "/arrivals", reached.listed, ("reader", "operator", "admin"), query=Reached),
    Operation("POST", "/arrivals/{id}/retry", reached.retry, ("operator",), bodies=(Nothing,)),
    Operation("GET", "/switches", switches.listed, ROLES),
    Operation("POST", "/switches", switches.throw, ("operator",), bodies=(Throw,)),
    Operation("POST", "/switches/lift", switches.lift, ("operator",), bodies=(Lift,)),
    Operation("GET", "/schedules", schedules.listed, ROLES),
    Operation("POST", "/schedules", schedules.new, ("operator",), bodies=(New,)),
    Operation("POST", "/schedules/edit", schedules.edit, ("operator",), bodies=(Edit,)),
    Operation("POST", "/schedules/pause", schedules.pause, ("operator",), bodies=(Named,)),
    Operation("POST", "/schedules/resume", schedules.resume, ("operator",), bodies=(Named,)),
    Operation("POST", "/schedules/backfill", schedules.backfill, ("operator",), bodies=(Backfill,)),
)  # fmt: skip
