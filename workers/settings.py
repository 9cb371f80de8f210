"""The only reader of the environment: one frozen value, validated at start, reporting every problem at once.

Every variable may be given as NAME_FILE with a path instead, so that secrets need not stand in the environment; an
empty one counts as not set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints, ValidationError

from delivery.installed import Installed
from delivery.installed import secrets_variable as channel_secrets
from delivery.webhook import Targets
from delivery.webhook import secrets_variable as target_secrets
from triggers.declared import Sources
from triggers.declared import secrets_variable as source_secrets
from twelvefold.directory import Address, Directory

from .allowance import Daily, Limits
from .fallbacks import Fallbacks
from .prices import Price
from .profiles import WireForm
from .services import Services

Role = Literal["decide", "plan", "summarise", "verify", "answer"]
"""What a model is asked for."""
Scope = Annotated[str, Field(pattern=r"^(all|agent:[a-z0-9_]+)$")]
Models = Annotated[tuple[str, ...], Field(min_length=1)]

VARIABLES = {
    "database_url": "DATABASE_URL", "owner_database_url": "OWNER_DATABASE_URL", "broker_url": "BROKER_URL",
    "openai_api_key": "OPENAI_API_KEY", "openai_base_url": "OPENAI_BASE_URL", "smtp_host": "SMTP_HOST",
    "smtp_port": "SMTP_PORT", "smtp_tls": "SMTP_TLS", "smtp_username": "SMTP_USERNAME",
    "smtp_password": "SMTP_PASSWORD", "smtp_sender": "SMTP_SENDER", "github_secrets": "GITHUB_WEBHOOK_SECRETS",
    "agent_modules": "AGENT_MODULES", "slack_signing_secrets": "SLACK_SIGNING_SECRETS", "slack_app_id": "SLACK_APP_ID",
    "slack_token": "SLACK_BOT_TOKEN",
    "imap_host": "IMAP_HOST", "imap_port": "IMAP_PORT", "imap_tls": "IMAP_TLS", "imap_username": "IMAP_USERNAME",
    "imap_password": "IMAP_PASSWORD", "imap_folder": "IMAP_FOLDER",
}  # fmt: skip
LISTS = ("github_secrets", "link_secrets", "slack_signing_secrets")
"""What is written as a list with commas."""

SECRETS = {"webhook_sources": source_secrets, "webhook_targets": target_secrets, "channels": channel_secrets}
"""What is declared as JSON by name, and the variable with the secrets of each."""


class ConfigurationError(Exception):
    """The environment is not usable; the text lists every problem and what to set."""


SlackUser = Annotated[str, StringConstraints(pattern=r"^[TE][A-Z0-9]+/[UW][A-Z0-9]+$")]


def _json(given: Any) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def _directory(given: Any) -> Any:
    return {"names": json.loads(given)} if isinstance(given, str) else given


class Settings(BaseModel):
    """Everything that is configured. Times are seconds, prices USD for a million tokens."""

    model_config = ConfigDict(frozen=True)

    database_url: SecretStr
    broker_url: SecretStr
    owner_database_url: SecretStr | None = None
    tenant: str = "default"
    agent_modules: str = "agents"
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    model: str = "gpt-5-mini-2025-08-07"
    models: Annotated[dict[Role, Models], BeforeValidator(_json)] = Field(default_factory=dict)
    """By role, the model and those that are asked when it does not answer: {"summarise": ["small", "other"]}."""
    model_profile: Literal["auto", "openai", "vllm", "llama.cpp", "ollama"] = "auto"
    """What the endpoint can do. `auto`: what `twelvefold doctor --probe` found, else `openai`."""
    wire_form: WireForm | None = None
    """How a decision travels, where that shall differ from the profile's way."""
    prices: Annotated[dict[str, Price], BeforeValidator(_json)] = Field(default_factory=dict)
    """Prices by model id, beyond those in workers/prices.json: {"my-model": {"in": "0.10", "out": "0.40"}}."""
    price_in: Decimal | None = Field(default=None, ge=0)
    price_out: Decimal | None = Field(default=None, ge=0)
    """The price of every model that has none of its own."""
    model_limits: Annotated[Limits, BeforeValidator(_json)] = Limits()
    """What all clients of the model's account may ask for together: {"requests_per_second": 10}."""
    daily: Annotated[dict[Scope, Daily], BeforeValidator(_json)] = Field(default_factory=dict)
    """What may be spent in a day (UTC): {"all": {"usd": "50"}, "agent:notes": {"usd": "5", "tokens": 1000000}}."""
    commit: str = Field(default="", pattern=r"^[0-9a-f]{0,64}$")
    """The commit of the deployed tree; where a checkout is deployed it is read from there."""
    smtp_host: str | None = None
    smtp_port: int = 587
    smtp_tls: Literal["none", "starttls", "implicit"] = "starttls"
    smtp_username: str | None = None
    smtp_password: SecretStr | None = None
    imap_host: str | None = None
    imap_port: int = 993
    imap_tls: Literal["none", "starttls", "implicit"] = "implicit"
    imap_username: str = ""
    imap_password: SecretStr | None = None
    imap_folder: str = "INBOX"
    smtp_sender: str = "Twelvefold <twelvefold@localhost>"
    mail_domain: str = "localhost"
    github_secrets: tuple[SecretStr, ...] = ()
    public_url: str | None = Field(default=None, pattern=r"^https?://[^\s?#]+$")
    """The address that people reach the public application at. Mails have no links without it."""
    link_secrets: tuple[Annotated[SecretStr, Field(min_length=32)], ...] = ()
    """Sign the links in mails: the first signs, all verify. Mails have no links without one."""
    mail_in_domain: Annotated[str, StringConstraints(to_lower=True, pattern=r"^[A-Za-z0-9.-]{1,200}$")] | None = None
    """The domain of the addresses that letters are answered at. Without it letters name none."""
    mail_authserv: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,200}$")
    """The name under which our own mail server writes Authentication-Results. Without it no sender is proven."""
    mail_in_separator: Literal["+", "-"] = "+"
    """What stands before the token in an address; some mail servers take no `+`."""
    slack_signing_secrets: tuple[SecretStr, ...] = ()
    """What Slack signs with. Nothing is served below /slack without one."""
    slack_app_id: str | None = None
    slack_users: Annotated[Mapping[SlackUser, Address | None], BeforeValidator(_json)] = Field(default_factory=dict)
    """`TEAM/USER` to the address of a person; null for one who may not any more. Nobody else is known."""
    slack_answers: str = "https://hooks.slack.com/"
    """Where an answer to whoever clicked may be sent: what an address of Slack's must begin with."""
    webhook_sources: Sources = Field(default_factory=dict)
    webhook_targets: Targets = Field(default_factory=dict)
    """Where webhooks go, by name, as JSON; their secrets stand in variables of their own."""
    webhook_max_body: int = Field(default=5_000_000, ge=1)
    services: Services = Field(default_factory=dict)
    directory: Annotated[Directory, BeforeValidator(_directory)] = Directory()
    """Names of people, groups and channels with their addresses, as JSON; agents and models use the names."""
    slack_token: SecretStr | None = None
    """A bot's token, `xoxb-…`: letters go out to Slack with it."""
    slack_api_url: str | None = Field(default=None, pattern=r"^https?://.*/$")
    channels: dict[str, Installed] = Field(default_factory=dict)
    """Channels of installed distributions, by name, as JSON; their secrets stand in variables of their own."""
    fallbacks: Fallbacks = Field(default_factory=dict)
    """Where a letter goes that cannot reach its recipient, as JSON of CHANNEL:RECIPIENT."""
    api_wait: float = Field(default=0.0, ge=0, le=60)
    """How long a POST to the API waits for the end of the turn when it does not say so itself."""
    tenant_concurrency: int | None = Field(default=None, ge=1, le=1000)
    """How many steps of one tenant may go on at once, whichever its agents; unlimited unless set."""
    db_pool: int = Field(default=12, ge=2)
    slots: int = Field(default=64, ge=1)
    heartbeat: float = Field(default=2.0, gt=0)
    dead_after: float = Field(default=8.0, gt=0)
    sweep: float = Field(default=1.0, gt=0)
    renudge: float = Field(default=5.0, gt=0)
    canary: float = Field(default=15.0, gt=0)
    silence: float = Field(default=60.0, gt=0)
    step_deadline: float = Field(default=180.0, gt=0)
    model_timeout: float = Field(default=120.0, gt=0)
    soft_shutdown: float = Field(default=10.0, ge=0)
    live_file: Path | None = None
    """A worker touches it every heartbeat, whatever becomes of database and broker; a probe looks at its age."""
    lane_prefix: str = "twelvefold"
    worker_events: bool = True

    @property
    def lease(self) -> float:
        """How long a claim stands: the step's deadline and 30 s."""
        return self.step_deadline + 30

    def masked(self) -> dict[str, str]:
        """Every setting as text, secrets as stars."""
        return {name: str(value) for name, value in self}


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings from the environment. Raises ConfigurationError naming every variable that is wrong or missing."""
    found = dict(os.environ if environment is None else environment)
    values: dict[str, object] = {}
    problems: list[str] = []
    for name in Settings.model_fields:
        text = _value(found, _variable(name), problems)
        if text is not None:
            values[name] = _list(text) if name in LISTS else text
    for name in SECRETS:
        if name in values:
            values[name] = _with_secrets(name, str(values[name]), found, problems)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(_explain(problems + _told(error))) from None
    if problems:
        raise ConfigurationError(_explain(problems))
    if not 2 * settings.heartbeat < settings.dead_after:
        raise ConfigurationError("TWELVEFOLD_DEAD_AFTER must be over twice TWELVEFOLD_HEARTBEAT, for example 8 and 2.")
    if settings.model_timeout >= settings.step_deadline:
        raise ConfigurationError("TWELVEFOLD_MODEL_TIMEOUT must be below TWELVEFOLD_STEP_DEADLINE: 120 and 180.")
    return settings


def _variable(name: str) -> str:
    return VARIABLES.get(name, f"TWELVEFOLD_{name.upper()}")


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _value(found: Mapping[str, str], variable: str, problems: list[str]) -> str | None:
    path = found.get(f"{variable}_FILE")
    if path is None:
        return found.get(variable) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"- {variable}_FILE: {path} cannot be read ({type(error).__name__})")
        return None


def _with_secrets(field: str, text: str, found: Mapping[str, str], problems: list[str]) -> Any:
    """The declared sources or targets, each with the secrets of its own variable, so that all are judged together."""
    try:
        declared = json.loads(text)
    except ValueError as error:
        problems.append(f"- {_variable(field)}: {error}")
        return {}
    for name, source in declared.items() if isinstance(declared, dict) else ():
        if not isinstance(source, dict):
            continue
        if source.pop("secrets", None) is not None:
            problems.append(f"- {_variable(field)}: secrets of {name} belong into {SECRETS[field](name)}")
        if secrets := _list(_value(found, SECRETS[field](name), problems) or ""):
            source["secrets"] = secrets
    return declared


def _told(error: ValidationError) -> list[str]:
    return [f"- {_where(item['loc'])}: {item['msg']}" for item in error.errors(include_url=False, include_input=False)]


def _where(path: tuple[int | str, ...]) -> str:
    """The variable that is wrong, and where in it. A missing secret of a source is missing in its own variable."""
    first, *more = map(str, path)
    if first in SECRETS and len(more) > 1 and more[1] == "secrets":
        return SECRETS[first](more[0])
    return " ".join([_variable(first), ".".join(more)]).strip()


def _explain(problems: list[str]) -> str:
    example = "Example: DATABASE_URL=postgresql://app@localhost/twelvefold BROKER_URL=redis://localhost:6379/0"
    return "\n".join(["These settings are missing or wrong:", *problems, example])
