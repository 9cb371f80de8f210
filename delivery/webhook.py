"""Webhooks out, as Standard Webhooks has them: one signed POST to a target of the settings, known by the letter's id.

Whoever gets the same `webhook-id` twice has the same letter, so one that may have arrived is simply sent again. No
redirect is followed. 410 closes the target until an operator opens it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from twelvefold.ports import Letter, NotSent, PerhapsSent, Receipt
from twelvefold.text import one_line

WAITS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds after each attempt that failed, as the specification suggests."""
LONGEST_S = 86_400.0
SLOW_DOWN = (429, 502, 503, 504)
Send = Callable[[str, bytes, dict[str, str], bool], tuple[int, Mapping[str, str]]]
"""(url, body, headers, inside our own network) to status and headers. Raises NotSent or PerhapsSent."""


def _key(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    try:
        raw = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith("whsec_") or not 24 <= len(raw) <= 64:
        raise ValueError(
            'a secret is whsec_ and 24 to 64 bytes in base64; make one: echo "whsec_$(openssl rand -base64 32)"'
        )
    return secret


def _url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("a target is an address such as https://shop.example/hooks, without a user and without a #")
    return url


class Target(BaseModel):
    """One target. `inside`: it stands in our own network, and only then may its address be http or private.
    `secrets`: each signs, so that a new one can be added before the old one goes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, AfterValidator(_url)]
    inside: bool = False
    secrets: tuple[Annotated[SecretStr, AfterValidator(_key)], ...] = Field(min_length=1)


def secrets_variable(name: str) -> str:
    """The variable with the secrets of this target, separated by commas."""
    return f"{name.upper().replace('-', '_')}_WEBHOOK_OUT_SECRETS"


def _names(found: dict[str, Target]) -> dict[str, Target]:
    for name, target in found.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name):
            raise ValueError(
                f"{name!r}: a target is named in lower-case letters, digits and hyphens, such as shop-orders"
            )
        if not (target.inside or target.url.startswith("https:")):
            raise ValueError(f"{name}: a target outside is an https address; one of our own network says inside: true")
    return found


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object of targets, such as {"shop": {"url": "https://shop.example/hooks"}}')
    return value


Targets = Annotated[dict[str, Target], BeforeValidator(_object), AfterValidator(_names)]
"""What the setting holds: targets by name."""


def signature(secrets: tuple[SecretStr, ...], id_: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one `v1,…` for each secret."""
    signed = f"{id_}.{timestamp}.".encode() + body
    keys = [base64.b64decode(secret.get_secret_value().removeprefix("whsec_")) for secret in secrets]
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


class WebhookChannel:
    """Letters as webhooks; the recipient is the name of a target. `now`: the wall clock."""

    waits = WAITS

    def __init__(self, targets: Mapping[str, Target], send: Send, now: Callable[[], datetime]) -> None:
        self._targets, self._send, self._now = targets, send, now

    def push(self, letter: Letter) -> Receipt:
        """POST it; the receipt's reference is its `webhook-id`."""
        target = self._targets.get(letter.recipient)
        if target is None:
            raise NotSent(f"no webhook target is named {one_line(letter.recipient, 60)!r}", retry=False)
        body, timestamp = written(letter), int(self._now().timestamp())
        headers = {
            "content-type": "application/json", "user-agent": "twelvefold", "webhook-id": letter.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(target.secrets, letter.id, timestamp, body),
        }  # fmt: skip
        status, answered = self._send(target.url, body, headers, target.inside)
        if status // 100 == 2:
            return Receipt(letter.id, f"answered {status}")
        raise _refused(status, _retry_after(answered, self._now()))

    def find(self, letter: Letter) -> Receipt | None:
        """Whoever gets it knows it by its id, so it may be sent again."""
        return None

    def pace(self, recipient: str) -> tuple[str, float]:
        """Each target is a destination of its own, as quick as it answers."""
        return recipient, 0.0


def written(letter: Letter) -> bytes:
    """The body: the same bytes at every attempt."""
    data = {"id": letter.id, "subject": letter.subject, "text": letter.text, "markdown": letter.source, **letter.data}
    kind = str(letter.data.get("type", "letter"))
    body = {"type": kind, "timestamp": letter.created_at.astimezone(UTC).isoformat(), "data": data}
    return json.dumps(body, ensure_ascii=False, sort_keys=True).encode()


def _refused(status: int, after: float | None) -> NotSent | PerhapsSent:
    if status == 410:
        return NotSent("answered 410: it wants no more webhooks", retry=False, holds="closed")
    if status in SLOW_DOWN:
        return NotSent(f"answered {status}", retry=True, retry_after=after, holds="destination" if after else "letter")
    return NotSent(f"answered {status}", retry=True, retry_after=after)


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds, at most a day; None where nothing usable was said."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), LONGEST_S)
    try:
        return max(0.0, min((parsedate_to_datetime(text) - now).total_seconds(), LONGEST_S))
    except (ValueError, TypeError):
        return None
