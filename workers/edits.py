"""Approve with other arguments than those that were shown: what a person gives, as today's tool reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twelvefold.canonical import plain
from twelvefold.errors import Rejection
from twelvefold.schema import arguments_of, read_call, stored_tool

from .registry import Registry


class Unfit(Exception):
    """The arguments are not those of the tool; the text says how to mend them."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The whole arguments as canonical JSON, and of each that changed what it was and what it is. `previewed`: the tool
    shows what it would do, so the preview that was shown is not of these.
    """

    tool: str
    args: str
    changed: dict[str, Any]
    previewed: bool


def read_edit(agents: Registry, agent: str, tool: str, shown: str, given: str) -> Edit:
    """What the members of the JSON object `given` make of the arguments that were shown. Raises Unfit."""
    found = agents[agent].agent
    kind = stored_tool(found.menu, found.renamed, tool)
    try:
        wanted = json.loads(given)
        if not isinstance(wanted, dict):
            raise Unfit("Send the arguments as one JSON object; members that are left out stay as they were shown.")
        before: dict[str, Any] = json.loads(shown)
        call = read_call(found.menu, kind.__spec__.name, json.dumps(plain({**before, **wanted})))
    except (ValueError, TypeError) as error:
        raise Unfit(f"The arguments are not JSON as it is stored here: {error}") from None
    except Rejection as error:
        raise Unfit(str(error)) from None
    args = arguments_of(call)
    after = json.loads(args)
    changed = {
        name: [before.get(name), after.get(name)]
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
    return Edit(tool, args, changed, hasattr(kind, "dry_run"))
