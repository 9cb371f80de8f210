"""Who gets a letter that cannot reach its recipient: the same person elsewhere, or the operators. Once, and never for a
letter that is a fallback already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_PLACE = re.compile(r"[a-z][a-z0-9_-]*:\S+")
ANYBODY = "*"


def _parsed(given: Any) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def _places(found: dict[str, str]) -> dict[str, str]:
    for place in [*(name for name in found if name != ANYBODY), *found.values()]:
        if not _PLACE.fullmatch(place):
            raise ValueError(f'{place!r} is not CHANNEL:RECIPIENT. Example: {{"slack:C012": "email:ann@shop.example"}}')
    return found


Fallbacks = Annotated[dict[str, str], BeforeValidator(_parsed), AfterValidator(_places)]
"""`{"email:ann@shop.example": "slack:U012", "*": "email:ops@shop.example"}`: where to instead; `*` for all others."""


def fallback(
    known: Mapping[str, str], channel: str, recipient: str, payload: dict[str, Any]
) -> tuple[str, str, dict[str, Any]] | None:
    """Channel, recipient and payload of the letter that goes out instead; None when there is none."""
    place = f"{channel}:{recipient}"
    found = known.get(place) or known.get(ANYBODY)
    if found is None or found == place or "instead" in payload:
        return None
    its_channel, _, its_recipient = found.partition(":")
    says = f"This was to go to {recipient} ({channel}), who could not be reached.\n\n"
    # a link decides in the name of the one who was asked, at another place of theirs, and never in that of operators
    decides = (recipient if "@" in recipient else its_recipient) if place in known else ""
    return its_channel, its_recipient, {**payload, "instead": says, "for": decides}
