"""The composition root: from settings to everything a process needs. Nothing here happens at import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from delivery import installed
from delivery.email import SmtpChannel
from delivery.log import LogChannel
from delivery.slack import SlackChannel
from delivery.webhook import WebhookChannel
from twelvefold.ports import Channel, Model, ModelReply, ModelRequest
from twelvefold.state import Task
from twelvefold.window import Window

from . import registry
from .checkout import checked_out
from .gateway import MAX_TOKENS, SEED
from .ids import uuid7
from .lanes import Lanes
from .posting import Posting
from .probe import probe
from .profiles import OPENAI, PROFILES, Profile
from .pulse import Pulse
from .roster import roster
from .scripted import ScriptedModel
from .settings import Settings
from .store import endpoints
from .store.database import Database
from .telemetry import logger
from .trial import Ask
from .turnstile import Turnstile, account_of
from .work import Runtime

ROOT = Path(__file__).resolve().parents[1]
HEART_POOL = 5
"""Heartbeat, sweep and feed, one more while a schedule fires, and one to leave with."""


def runtime(settings: Settings) -> Runtime:
    """One incarnation of a process: its id, connections, agents and model."""
    agents = registry.load(settings.agent_modules)
    agents.check_names(settings.directory)
    worker = uuid7()
    served = roster(settings)
    if settings.openai_api_key is not None:
        served.check((e.agent for e in agents.loaded.values()), elsewhere=settings.openai_base_url is not None)
    db = Database(settings.database_url.get_secret_value(), size=settings.db_pool)
    profile = _profile(settings, db)
    return Runtime(
        worker=worker,
        db=db,
        registry=agents,
        lanes=Lanes(settings.broker_url.get_secret_value(), settings.lane_prefix),
        pulse=Pulse(gap=settings.dead_after / 2),
        model=_model(settings, agents, profile),
        scripted=settings.openai_api_key is None,
        settings=settings.model_copy(update={"commit": settings.commit or checked_out(ROOT)}),
        roster=served,
        profile=profile,
        turnstile=_turnstile(settings, db),
        log=logger(worker=str(worker)),
    )


@contextmanager
def asker(settings: Settings, loaded: registry.Loaded) -> Iterator[Ask]:
    """A model for trials of one agent: the configured one, else its script."""
    with ExitStack() as opened:
        db = opened.enter_context(closing(Database(settings.database_url.get_secret_value(), size=1)))
        model: Model = ScriptedModel({loaded.agent.name: loaded.script} if loaded.script else {})
        if settings.openai_api_key is not None:
            from .model import OpenAIModel

            key = settings.openai_api_key.get_secret_value()
            model = opened.enter_context(closing(OpenAIModel(key, settings.openai_base_url, _profile(settings, db))))
        name = roster(settings).models("decide", loaded.agent.model)[0]

        def ask(window: Window, task: Task) -> ModelReply:
            return model.ask(ModelRequest(
                agent=loaded.agent.name, model=name, system=window.system, user=window.user, menu=window.menu,
                temperature=0.0, seed=SEED, max_tokens=MAX_TOKENS, timeout=settings.model_timeout, task=task,
            ))  # fmt: skip

        yield ask


def probed(settings: Settings) -> Profile:
    """Ask the endpoint what it can do, and keep it for every worker. Raises Transport and Fatal."""
    assert settings.openai_api_key is not None, "there is an endpoint to ask"
    from .model import OpenAIModel

    key, opened = settings.openai_api_key.get_secret_value(), ExitStack()

    def make(profile: Profile) -> Model:
        return opened.enter_context(closing(OpenAIModel(key, settings.openai_base_url, profile)))

    with opened, closing(Database(settings.database_url.get_secret_value(), size=1)) as db:
        found = probe(make, settings.model)
        endpoints.keep(db, settings.openai_base_url or "", found)
    return found


def _turnstile(settings: Settings, db: Database) -> Turnstile | None:
    if settings.openai_api_key is None:
        return None
    account = account_of(settings.openai_api_key.get_secret_value(), settings.openai_base_url)
    return Turnstile(db, account, settings.model_limits, Random())


def beside(run: Runtime) -> Runtime:
    """The same with a few connections of its own: a heartbeat must not wait behind steps for one of theirs."""
    url = run.settings.database_url.get_secret_value()
    return replace(run, db=Database(url, size=HEART_POOL, application="twelvefold-heart"))


def _profile(settings: Settings, db: Database) -> Profile:
    """What the endpoint can do: as it was set, or as a probe found it."""
    found = PROFILES.get(settings.model_profile)
    if found is None:
        found = endpoints.profile(db, settings.openai_base_url or "") if settings.openai_api_key else OPENAI
    return found if settings.wire_form is None else found.model_copy(update={"form": settings.wire_form})


def _model(settings: Settings, agents: registry.Registry, profile: Profile) -> Model:
    if settings.openai_api_key is None:
        return ScriptedModel({name: entry.script for name, entry in agents.loaded.items() if entry.script})
    from .model import OpenAIModel  # its SDK takes a second to import, which a scripted worker need not wait for

    return OpenAIModel(settings.openai_api_key.get_secret_value(), settings.openai_base_url, profile)


def channels(run: Runtime) -> Mapping[str, Channel]:
    """The ways out that are configured, by name. Raises DeclarationError for an installed one that there is not."""
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
    found |= {name: installed.channel(name, declared) for name, declared in s.channels.items()}
    if s.webhook_targets:
        found["webhook"] = WebhookChannel(s.webhook_targets, Posting(), lambda: datetime.now(UTC))
    return found
