"""The composition root: from settings to everything a process needs. Nothing here happens at import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from delivery.email import SmtpChannel
from delivery.log import LogChannel
from delivery.slack import SlackChannel
from delivery.webhook import WebhookChannel
from twelvefold.ports import Channel, Model

from . import registry
from .ids import uuid7
from .lanes import Lanes
from .posting import Posting
from .pulse import Pulse
from .scripted import ScriptedModel
from .settings import Settings
from .store.database import Database
from .telemetry import logger
from .work import Runtime

HEART_POOL = 5
"""Heartbeat, sweep and feed, one more while a schedule fires, and one to leave with."""


def runtime(settings: Settings) -> Runtime:
    """One incarnation of a process: its id, connections, agents and model."""
    agents = registry.load(settings.agent_modules)
    agents.check_names(settings.directory)
    worker = uuid7()
    return Runtime(
        worker=worker,
        db=Database(settings.database_url.get_secret_value(), size=settings.db_pool),
        registry=agents,
        lanes=Lanes(settings.broker_url.get_secret_value(), settings.lane_prefix),
        pulse=Pulse(gap=settings.dead_after / 2),
        model=_model(settings, agents),
        scripted=settings.openai_api_key is None,
        settings=settings,
        log=logger(worker=str(worker)),
    )


def beside(run: Runtime) -> Runtime:
    """The same with a few connections of its own: a heartbeat must not wait behind steps for one of theirs."""
    url = run.settings.database_url.get_secret_value()
    return replace(run, db=Database(url, size=HEART_POOL, application="twelvefold-heart"))


def _model(settings: Settings, agents: registry.Registry) -> Model:
    if settings.openai_api_key is None:
        return ScriptedModel({name: entry.script for name, entry in agents.loaded.items() if entry.script})
    from .model import OpenAIModel  # its SDK takes a second to import, which a scripted worker need not wait for

    return OpenAIModel(settings.openai_api_key.get_secret_value(), settings.openai_base_url, settings.wire_form)


def channels(run: Runtime) -> Mapping[str, Channel]:
    """The ways out that are configured, by name."""
    s = run.settings
    found: dict[str, Channel] = {"log": LogChannel(lambda line: run.log.info("delivered", line=line))}
    if s.smtp_host:
        found["email"] = SmtpChannel(
            host=s.smtp_host, port=s.smtp_port, tls=s.smtp_tls, username=s.smtp_username,
            password=s.smtp_password.get_secret_value() if s.smtp_password else None,
            sender=s.smtp_sender, domain=s.mail_domain, timeout=20.0,
        )  # fmt: skip
    if s.slack_token:
        found["slack"] = SlackChannel(s.slack_token.get_secret_value(), url=s.slack_api_url)
    if s.webhook_targets:
        found["webhook"] = WebhookChannel(s.webhook_targets, Posting(), lambda: datetime.now(UTC))
    return found
