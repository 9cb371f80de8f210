"""The recorded model: gives the reply that was recorded for the very same request, and never asks anybody.

What a replay, a what-if or a test needs: as long as the bytes of the request are those of then, so is the decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from twelvefold.canonical import sha256
from twelvefold.errors import Fatal
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall

from .model_wire import answer, question, written
from .profiles import Profile


class RecordedModel:
    """Answers from `replies`: raw replies by the hash of the request's bytes, as `ModelAsked` holds both."""

    def __init__(self, replies: Mapping[str, str], profile: Profile) -> None:
        self.replies, self.profile = replies, profile

    def ask(self, request: ModelRequest) -> ModelReply:
        """The recorded reply. Raises Fatal(code="not_recorded") when this request was never sent."""
        name = sha256(request.body or written(question(request, self.profile)))
        raw = self.replies.get(name)
        if raw is None:
            raise Fatal(
                f"No reply is recorded for this request ({name[:16]}, model {request.model}); {len(self.replies)} are "
                "recorded for others. Prompt, menu, model or window are not those of then.", code="not_recorded",
            )  # fmt: skip
        body = json.loads(raw)
        if isinstance(body, dict) and body.get("scripted") is True:
            calls = tuple(ProposedCall(tool, arguments) for tool, arguments in body["calls"])
            return ModelReply(calls=calls, raw=raw, model="scripted")
        reply = answer(body, self.profile.form, raw=raw, request_id=None, duration_ms=0)
        if reply is None:
            raise Fatal(f"The reply that is recorded for {name[:16]} holds no choice.", code="not_recorded")
        return reply
