"""The control API: what a program or a person with a token does to threads. A thread is what the code calls a task."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from console.edge import Edge

from . import look
from .describe import described
from .gate import Gate
from .operations import OPERATIONS


def routes(held: Edge) -> list[BaseRoute]:
    """The routes of the API. All but its description, which tells nothing of anybody, need a token."""
    gate = Gate(held, look.turn)
    found: list[BaseRoute] = [
        Route(o.path, (gate.log if o.stream else gate.endpoint)(o.handler, *o.roles), methods=[o.method])
        for o in OPERATIONS
    ]
    return found + described(OPERATIONS)
