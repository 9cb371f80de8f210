"""Senders by name, as an operator writes it: how each signs and where its deliveries say what. All of it data.

A name that is not here is looked for among the installed distributions, in the entry point group `twelvefold.triggers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from twelvefold.errors import DeclarationError

from .adapter import Adapter, Source, Translator, Verifier, check_secrets
from .proofs import Either, Signed, Token
from .schemes import GITHUB, SLACK, STANDARD, STRIPE, SVIX
from .signature import Scheme
from .source import GitHubEvents, Pointed

GROUP = "twelvefold.triggers"
Make = Callable[[Mapping[str, Any], tuple[str, ...]], Adapter]
"""What an entry point is: of the operator's options and the active secrets, the newest first, it makes an adapter."""


@dataclass(frozen=True, slots=True)
class Sender:
    """One well-known sender. `token`: the header that carries the secret itself, where nothing is signed."""

    schemes: tuple[Scheme, ...]
    names: Pointed | GitHubEvents
    token: str | None = None


_STANDARD = Pointed(key_headers=("webhook-id", "svix-id"), type_pointer="/type")
_GITLAB = Pointed(
    key_headers=("Idempotency-Key", "webhook-id", "X-Gitlab-Event-UUID+X-Gitlab-Webhook-UUID", "X-Gitlab-Event-UUID"),
    type_pointer="/object_kind", action_pointer="/object_attributes/action", sender_pointer="/user/username",
    conversation_pointer="/object_attributes/url",
)  # fmt: skip
_STRIPE = Pointed(
    key_pointer="/id", type_pointer="/type", conversation_pointer="/data/object/id", live_pointer="/livemode"
)

SENDERS: Mapping[str, Sender] = {
    "github": Sender((GITHUB,), GitHubEvents()),
    "stripe": Sender((STRIPE,), _STRIPE),
    "slack": Sender((SLACK,), Pointed(key_pointer="/event_id", type_pointer="/type")),
    "standard": Sender((STANDARD, SVIX), _STANDARD),
    "svix": Sender((SVIX, STANDARD), _STANDARD),
    "openai": Sender((STANDARD,), _STANDARD),
    "gitlab": Sender((STANDARD,), _GITLAB, token="X-Gitlab-Token"),
}


MAIL = ("postmark", "mailgun", "sendgrid")
"""Providers of inbound mail."""


def of_mail(name: str, tenant: str, secrets: tuple[str, ...]) -> Source:
    """Where a provider posts the mails that it took for us. Raises DeclarationError."""
    from . import inbound  # reading mail takes libraries that not everybody installs

    return inbound.source(name, tenant, secrets)


def preset(name: str) -> Sender | None:
    """The well-known sender of this name."""
    return SENDERS.get(name)


def verifier(name: str, sender: Sender, secrets: tuple[str, ...]) -> Verifier:
    """What proves this sender. Raises DeclarationError for secrets that cannot."""
    signed = Signed(name, secrets, sender.schemes)
    return signed if sender.token is None else Either((signed, Token(name, secrets, sender.token)))


def installed(name: str) -> Make:
    """What an installed distribution offers under this name. Raises DeclarationError when none does."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise DeclarationError(
            f"There is no scheme {name!r}. Known are hmac, {', '.join((*SENDERS, *MAIL))}, and what installed "
            f"distributions offer as entry points of the group {GROUP}: {', '.join(_offered()) or 'none'}."
        )
    make: Make = found.load()
    return make


def third_party(name: str, tenant: str, options: Mapping[str, Any], secrets: tuple[str, ...]) -> Source:
    """A source of an installed adapter. Raises DeclarationError."""
    check_secrets(secrets)
    adapter = installed(name)(options, secrets)
    halves: tuple[Verifier, Translator] = (adapter, adapter)
    return Source(tenant, *halves)


def _offered() -> list[str]:
    return sorted(found.name for found in entry_points(group=GROUP))
