"""Who may send webhooks to this deployment, from its settings: GitHub, and every source that is declared."""

from __future__ import annotations

from collections.abc import Mapping

from triggers.adapter import Source
from triggers.source import github
from workers.settings import Settings


def sources(settings: Settings) -> Mapping[str, Source]:
    """The webhook sources that have a secret, by the name in their address."""
    found = {name: each.source(settings.tenant) for name, each in settings.webhook_sources.items()}
    if settings.github_secrets:
        found["github"] = github(settings.tenant, tuple(s.get_secret_value() for s in settings.github_secrets))
    return found
