"""Find out what an endpoint can do, by asking it: a handful of tiny questions, each of which wants one call.

What it refuses with 400 is left out, what it accepts and ignores shows in its reply. Nothing is guessed from its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twelvefold.errors import Fatal
from twelvefold.ports import Model, ModelReply, ModelRequest

from .profiles import OPENAI, Profile

Make = Callable[[Profile], Model]
RELAXED: tuple[dict[str, Any], ...] = (
    {"length": "max_tokens"}, {"parallel": False}, {"strict": False}, {"tool_choice": False}, {"seed": False},
)  # fmt: skip
"""What an endpoint may not know, in the order in which it is left out."""
SCHEMA_ONLY: dict[str, Any] = {"form": "json_schema", "tool_choice": False, "strict": False, "parallel": False}
MENU = (
    {
        "name": "answer",
        "description": "Answer with a number. Use it now, for example with a=1.",
        "parameters": {
            "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": False,
        },
    },
)  # fmt: skip


def probe(make: Make, model: str) -> Profile:
    """The endpoint's profile. Raises Transport when it does not answer, and Fatal: a bad key, an unknown model, or an
    endpoint that decides in neither of the two wire forms.
    """
    full = OPENAI.model_copy(update={"name": "probed"})
    tried = []
    for form in ({}, SCHEMA_ONLY):
        found = _accepted(make, model, full.model_copy(update=form))
        if found is None:
            tried.append("refuses it")
            continue
        profile, reply = found
        if [call.name for call in reply.calls] == ["answer"]:
            return profile
        tried.append("answers with no call")
    raise Fatal(
        f"The endpoint cannot decide: with tool calls it {tried[0]}, with a json_schema it {tried[1]}. Start it with "
        "what its model needs for one of them, such as --jinja or --enable-auto-tool-choice.", code="declaration",
    )  # fmt: skip


def _accepted(make: Make, model: str, profile: Profile) -> tuple[Profile, ModelReply] | None:
    """The profile with no more left out than has to be, and what came back; None when even the least is refused."""
    relaxed: dict[str, Any] = {}
    reply = _asked(make, model, profile)
    for change in RELAXED:
        if reply is not None:
            break
        relaxed |= change
        reply = _asked(make, model, profile.model_copy(update=relaxed))
    if reply is None:
        return None
    for name in list(relaxed)[:-1]:  # the last one was needed; the others may have been left out for nothing
        less = {key: value for key, value in relaxed.items() if key != name}
        again = _asked(make, model, profile.model_copy(update=less))
        if again is not None:
            relaxed, reply = less, again
    return profile.model_copy(update=relaxed), reply


def _asked(make: Make, model: str, profile: Profile) -> ModelReply | None:
    """What the endpoint answers; None where it refuses the request as such."""
    request = ModelRequest(
        agent="doctor", model=model, system="You answer with one call.", user="Call answer with a = 1.", menu=MENU,
        temperature=0.0, seed=42, max_tokens=200, timeout=60.0,
    )  # fmt: skip
    try:
        return make(profile).ask(request)
    except Fatal as error:
        if error.code != "request":
            raise
        return None
