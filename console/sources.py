"""Who may send webhooks to this deployment, from its settings: GitHub, and every source that is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import SecretStr

from triggers.declared import Declared
from triggers.source import Generic, GitHub, Source
from workers.settings import Settings


def sources(settings: Settings) -> Mapping[str, Source]:
    """The webhook sources that have a secret, by the name in their address."""
    found: dict[str, Source] = {name: _generic(each, settings) for name, each in settings.webhook_sources.items()}
    if settings.github_secrets:
        found["github"] = GitHub(settings.tenant, _plain(settings.github_secrets))
    return found


def _generic(declared: Declared, settings: Settings) -> Generic:
    return Generic(
        tenant=declared.tenant or settings.tenant, secrets=_plain(declared.secrets), scheme=declared.scheme,
        key_header=declared.key_header, key_pointer=declared.key_pointer, type_header=declared.type_header,
        type_pointer=declared.type_pointer, default_type=declared.type, sender_pointer=declared.sender_pointer,
        conversation_pointer=declared.conversation_pointer,
    )  # fmt: skip


def _plain(secrets: Iterable[SecretStr]) -> tuple[str, ...]:
    return tuple(secret.get_secret_value() for secret in secrets)
