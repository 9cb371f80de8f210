"""The only reader of the environment: one frozen value, validated at start, reporting every problem at once.

Every variable may be given as NAME_FILE with a path instead, so that secrets need not stand in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

VARIABLES = {
    "database_url": "DATABASE_URL", "owner_database_url": "OWNER_DATABASE_URL", "broker_url": "BROKER_URL",
    "openai_api_key": "OPENAI_API_KEY", "openai_base_url": "OPENAI_BASE_URL", "smtp_host": "SMTP_HOST",
    "smtp_port": "SMTP_PORT", "smtp_tls": "SMTP_TLS", "smtp_username": "SMTP_USERNAME",
    "smtp_password": "SMTP_PASSWORD", "smtp_sender": "SMTP_SENDER", "github_secrets": "GITHUB_WEBHOOK_SECRETS",
    "agent_modules": "AGENT_MODULES",
}  # fmt: skip


class ConfigurationError(Exception):
    """The environment is not usable; the text lists every problem and what to set."""


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
    wire_form: Literal["tools", "json_schema"] = "tools"
    price_in: float = Field(default=0.0, ge=0)
    price_out: float = Field(default=0.0, ge=0)
    smtp_host: str | None = None
    smtp_port: int = 587
    smtp_tls: Literal["none", "starttls", "implicit"] = "starttls"
    smtp_username: str | None = None
    smtp_password: SecretStr | None = None
    smtp_sender: str = "Twelvefold <twelvefold@localhost>"
    mail_domain: str = "localhost"
    github_secrets: tuple[SecretStr, ...] = ()
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
    for name in Settings.model_fields:
        text = _value(found, VARIABLES.get(name, f"TWELVEFOLD_{name.upper()}"))
        if text is not None:
            values[name] = tuple(filter(None, text.split(","))) if name == "github_secrets" else text
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from None
    if not 2 * settings.heartbeat < settings.dead_after:
        raise ConfigurationError("TWELVEFOLD_DEAD_AFTER must be over twice TWELVEFOLD_HEARTBEAT, for example 8 and 2.")
    if settings.model_timeout >= settings.step_deadline:
        raise ConfigurationError("TWELVEFOLD_MODEL_TIMEOUT must be below TWELVEFOLD_STEP_DEADLINE: 120 and 180.")
    return settings


def _value(found: Mapping[str, str], variable: str) -> str | None:
    if f"{variable}_FILE" in found:
        return Path(found[f"{variable}_FILE"]).read_text(encoding="utf-8").strip()
    return found.get(variable)


def _explain(error: ValidationError) -> str:
    lines = ["These settings are missing or wrong:"]
    for item in error.errors(include_url=False, include_input=False):
        name = str(item["loc"][0])
        lines.append(f"- {VARIABLES.get(name, f'TWELVEFOLD_{name.upper()}')}: {item['msg']}")
    lines.append("Example: DATABASE_URL=postgresql://app@localhost/twelvefold BROKER_URL=redis://localhost:6379/0")
    return "\n".join(lines)
