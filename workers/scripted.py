"""The scripted model: an agent's own `script(task) -> call` in the place of a model, and every event says so."""

from __future__ import annotations

import json
from collections.abc import Mapping

from twelvefold.errors import Fatal
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.schema import arguments_of

from .registry import Script

NAME = "scripted"


class ScriptedModel:
    """A model that follows scripts by agent name. Raises Fatal for an agent without one."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts

    def ask(self, request: ModelRequest) -> ModelReply:
        """The script's next call, as a model would have written it."""
        script = self.scripts.get(request.agent)
        if script is None:
            raise Fatal(
                f"{request.agent} has no script and no model is configured. Set OPENAI_API_KEY (and OPENAI_BASE_URL), "
                f"or write agents/{request.agent}/script.py with script(task) -> call.",
                code="no_model",
            )
        decided = script(request.task)
        chosen = decided if isinstance(decided, list) else [decided]
        calls = tuple(ProposedCall(call.__spec__.name, arguments_of(call)) for call in chosen)
        raw = json.dumps({"scripted": True, "calls": [[call.name, call.arguments] for call in calls]})
        return ModelReply(calls=calls, raw=raw, model=NAME)
