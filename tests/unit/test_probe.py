"""What a probe finds out about endpoints that lack this or that."""

from __future__ import annotations

import pytest

from twelvefold.errors import Fatal
from twelvefold.ports import Model, ModelReply, ModelRequest, ProposedCall
from workers.model_wire import question
from workers.probe import probe
from workers.profiles import OPENAI, Profile


class Endpoint:
    """Refuses the parameters in `unknown`; `ignores` tools or the schema and answers with prose instead."""

    def __init__(self, unknown: set[str] = frozenset(), ignores: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.unknown, self.ignores, self.asked = unknown, ignores, 0

    def __call__(self, profile: Profile) -> Model:
        self.profile = profile
        return self

    def ask(self, request: ModelRequest) -> ModelReply:
        """Answer."""
        self.asked += 1
        body = question(request, self.profile)
        seen = set(body) | ({"strict"} if "strict" in str(body.get("tools")) else set())
        if seen & self.unknown:
            raise Fatal("unknown parameter", code="request")
        if seen & self.ignores:
            return ModelReply(text="One.")
        return ModelReply(calls=(ProposedCall("answer", '{"a": 1}'),))


def test_an_endpoint_that_knows_everything_costs_one_question() -> None:
    endpoint = Endpoint()
    assert probe(endpoint, "m") == OPENAI.model_copy(update={"name": "probed"})
    assert endpoint.asked == 1


@pytest.mark.parametrize(
    ("unknown", "lacks"),
    [
        ({"max_completion_tokens"}, {"length": "max_tokens"}),
        ({"parallel_tool_calls"}, {"parallel": False}),
        ({"tool_choice", "strict"}, {"tool_choice": False, "strict": False}),
        ({"seed", "max_completion_tokens"}, {"seed": False, "length": "max_tokens"}),
    ],
)
def test_only_what_is_refused_is_left_out(unknown: set[str], lacks: dict[str, object]) -> None:
    assert probe(Endpoint(unknown), "m") == OPENAI.model_copy(update={"name": "probed", **lacks})


def test_an_endpoint_that_ignores_tools_is_asked_with_a_schema() -> None:
    found = probe(Endpoint(ignores={"tools"}), "m")
    assert (found.form, found.tool_choice, found.seed) == ("json_schema", False, True)
    found = probe(Endpoint(unknown={"tools", "max_completion_tokens"}), "m")
    assert (found.form, found.length) == ("json_schema", "max_tokens")


def test_an_endpoint_that_cannot_decide_is_told_apart_from_one_that_refuses_the_key() -> None:
    with pytest.raises(Fatal, match=r"answers with no call, with a json_schema it refuses it.*--jinja") as caught:
        probe(Endpoint(unknown={"response_format"}, ignores={"tools"}), "m")
    assert caught.value.code == "declaration"

    class Locked(Endpoint):
        def ask(self, request: ModelRequest) -> ModelReply:
            raise Fatal("bad key", code="auth")

    with pytest.raises(Fatal, match="bad key"):
        probe(Locked(), "m")
