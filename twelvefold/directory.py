"""The directory: names of people, groups and channels, and the addresses behind them. Agents and models use the names.

An address reaches a letter, a row of `approvals` and a person's screen, and never a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from .canonical import sha256

_NAME = re.compile(r"#?[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(r"[^@\s,;:<>\"'()\[\]&|=]+@(?:(?:[\w-]+\.)+[^\W\d_][\w-]*\w|localhost\b)")
"""What is taken for an address in a text."""
Address = Annotated[str, StringConstraints(pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$", to_lower=True, max_length=254)]
_Name = Annotated[str, StringConstraints(pattern=rf"^{_NAME.pattern}$")]


def is_name(text: str) -> bool:
    """Whether the text can be a name in a directory."""
    return _NAME.fullmatch(text) is not None


def _parts(given: Any) -> Any:
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


class Directory(BaseModel):
    """Name to addresses, of a group several: `{"refund-ops": "ann@shop.example, ben@shop.example"}`."""

    model_config = ConfigDict(frozen=True)

    names: Mapping[_Name, Annotated[tuple[Address, ...], BeforeValidator(_parts), Field(min_length=1)]] = Field(
        default_factory=dict
    )

    def resolve(self, target: str) -> str:
        """The target with every known name replaced by its addresses; what is no name of ours stays as it is."""
        parts = [part.strip() for part in target.split(",")]
        found = [address for part in parts for address in self.names.get(part, (part,)) if address]
        return ", ".join(dict.fromkeys(found))

    def addresses(self, recipient: str) -> tuple[str, ...]:
        """The addresses of a recipient: those behind the name, or the recipient itself."""
        return self.names.get(recipient, (recipient,))

    @cached_property
    def _by_address(self) -> dict[str, str]:
        people = sorted(self.names.items(), key=lambda entry: -len(entry[1]))  # a name of one's own comes last and wins
        return {address: name for name, found in people for address in found}

    def name_of(self, address: str) -> str:
        """The name of whoever has this address; of a stranger one that is always the same and tells nothing."""
        known = self._by_address.get(address.lower())
        return known if known is not None else f"somebody-{sha256(address.lower())[:6]}"

    def masked(self, text: str) -> str:
        """The text with a name in the place of every address."""
        return ADDRESS.sub(lambda found: self.name_of(found[0]), text) if "@" in text else text

    def unknown(self, names: Mapping[str, str]) -> list[str]:
        """Of names and where each is used, those that stand for nobody, as sentences."""
        return [f"{name!r}, used by {where}, is not in the directory" for name, where in names.items()
                if name not in self.names]  # fmt: skip
