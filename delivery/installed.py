"""Channels that somebody else ships: an installed distribution offers them as entry points of `twelvefold.channels`.

An entry point is a function of the operator's options and secret that makes a channel (`twelvefold.ports.Channel`). It
may also find letters in doubt, have a pace, or wait by rules of its own (`Finds`, `Paced`, `Patient` there).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from twelvefold.errors import DeclarationError
from twelvefold.ports import Channel

GROUP = "twelvefold.channels"
OURS = frozenset({"email", "log", "slack", "task", "webhook"})
Make = Callable[[Mapping[str, Any], str], Channel]


class Installed(BaseModel):
    """One such channel as an operator declares it: the name of its entry point, what it is told, and its secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    use: str
    options: dict[str, Any] = Field(default_factory=dict)
    secrets: tuple[SecretStr, ...] = ()


def secrets_variable(name: str) -> str:
    """The variable with the secret of this channel."""
    return f"{name.upper().replace('-', '_')}_CHANNEL_SECRET"


def channel(name: str, declared: Installed) -> Channel:
    """The channel of a declaration. Raises DeclarationError when there is none, or when its name is one of ours."""
    if name in OURS:
        raise DeclarationError(f"The channel {name} is ours; give the other one a name of its own, such as my-{name}.")
    found = next(iter(entry_points(group=GROUP, name=declared.use)), None)
    if found is None:
        offered = ", ".join(sorted(each.name for each in entry_points(group=GROUP))) or "none"
        raise DeclarationError(
            f"No installed distribution offers a channel {declared.use!r}. Those of the entry point group {GROUP}: "
            f"{offered}. Install the one that you mean, or mend `use` in TWELVEFOLD_CHANNELS."
        )
    make: Make = found.load()
    return make(declared.options, declared.secrets[0].get_secret_value() if declared.secrets else "")
