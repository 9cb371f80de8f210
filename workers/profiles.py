"""What an endpoint that speaks chat.completions can do: four known kinds, or what a probe of it found.

| profile     | decision as | `tool_choice` | `strict` | `parallel_tool_calls` | `seed` | length as               |
|-------------|-------------|---------------|----------|-----------------------|--------|-------------------------|
| `openai`    | tool calls  | yes           | yes      | yes                   | yes    | `max_completion_tokens` |
| `vllm`      | tool calls  | yes           | yes      | yes                   | yes    | `max_tokens`            |
| `llama.cpp` | json_schema | no            | no       | no                    | yes    | `max_tokens`            |
| `ollama`    | json_schema | no            | no       | no                    | yes    | `max_tokens`            |

Where `tool_choice` cannot force a call, the schema form does.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

WireForm = Literal["tools", "json_schema"]
Known = Literal["openai", "vllm", "llama.cpp", "ollama"]


class Profile(BaseModel):
    """The parameters that are sent beyond the portable ones; what is False is left out of the request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    form: WireForm = "tools"
    tool_choice: bool = True
    strict: bool = True
    parallel: bool = True
    seed: bool = True
    length: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"


OPENAI = Profile(name="openai")
PROFILES: dict[str, Profile] = {
    found.name: found
    for found in (
        OPENAI,
        Profile(name="vllm", length="max_tokens"),
        Profile(
            name="llama.cpp", form="json_schema", tool_choice=False, strict=False, parallel=False, length="max_tokens"
        ),
        Profile(
            name="ollama", form="json_schema", tool_choice=False, strict=False, parallel=False, length="max_tokens"
        ),
    )
}
