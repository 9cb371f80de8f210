"""The control API: what a program or a person with a token does to threads. A thread is what the code calls a task."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from console.edge import Edge
from workers.store.tokens import ROLES

from . import look, verbs
from .gate import Gate
from .launch import launch
from .respond import respond


def routes(held: Edge) -> list[BaseRoute]:
    """The routes of the API. Every one of them needs a token."""
    gate = Gate(held, look.turn)
    return [
        Route("/thread", gate.endpoint(look.many, *ROLES), methods=["GET"]),
        Route("/thread", gate.endpoint(launch, "requester"), methods=["POST"]),
        Route("/thread/{id}", gate.endpoint(look.thread, *ROLES), methods=["GET"]),
        Route("/thread/{id}/events", gate.endpoint(look.events, *ROLES), methods=["GET"]),
        Route("/thread/{id}/response", gate.endpoint(respond, "requester", "approver"), methods=["POST"]),
        *(
            Route(f"/thread/{{id}}/{verb.__name__}", gate.endpoint(verb, "operator"), methods=["POST"])
            for verb in (verbs.cancel, verbs.pause, verbs.resume, verbs.retry)
        ),
        Route("/approvals", gate.endpoint(look.approvals, *ROLES), methods=["GET"]),
    ]
