"""Is everything there that the fleet needs? Each finding is one line that says what to do. Nothing is changed."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal

from alembic.script import ScriptDirectory

from twelvefold.errors import DeclarationError, Fatal, Transport
from workers import registry
from workers.lanes import LANES, Lanes
from workers.settings import Settings
from workers.store import health, schedules
from workers.store.database import UNAVAILABLE, Database
from workers.telemetry import kind_of
from workers.wiring import probed

from .migrate import config

SMTP_S = 5.0
OVERDUE_S = 120.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `note`: it works, and somebody may want to know."""

    what: str
    state: Literal["ok", "note", "wrong"]
    text: str

    def as_row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def examine(settings: Settings, *, ask_model: bool = False) -> Iterator[Finding]:
    """Look at everything, one finding after the other. `ask_model`: ask the endpoint what it can do, and keep it."""
    yield from _database(settings)
    yield _broker(settings)
    yield _agents(settings)
    yield _probed(settings) if ask_model and settings.openai_api_key else _model(settings)
    yield _mail(settings)
    yield _mail_in(settings)
    yield _links(settings)


def _database(settings: Settings) -> Iterator[Finding]:
    url = settings.database_url.get_secret_value()
    with closing(Database(url, size=1, application="twelvefold-doctor")) as db:
        try:
            found = health.version(db)
        except UNAVAILABLE as error:
            yield Finding(
                "database", "wrong", f"It does not answer ({kind_of(error)}). Check DATABASE_URL, and start it."
            )
            return
        newest = ScriptDirectory.from_config(config(url)).get_current_head()
        if found != newest:
            told = f"Its schema is {found or 'missing'}, this code needs {newest}. Run: twelvefold migrate"
            yield Finding("database", "wrong", told)
            return
        yield Finding("database", "ok", f"It answers, with schema {found}.")
        yield _role(health.rights(db))
        yield _workers(health.workers(db, settings.dead_after))
        yield _schedules(schedules.overdue(db, None, OVERDUE_S))


def _role(found: health.Rights) -> Finding:
    if not found.enough:
        return Finding("role", "wrong", f"{found.role} may not write. Connect as a member of twelvefold_app.")
    if found.rewrites:
        told = f"{found.role} could rewrite the log. Connect as a member of twelvefold_app; the owner only migrates."
        return Finding("role", "wrong", told)
    return Finding("role", "ok", f"{found.role} may append to the log and never change it.")


def _workers(living: dict[str, int]) -> Finding:
    missing = [lane for lane in LANES if lane not in living]
    if missing:
        told = f"No worker serves {', '.join(missing)}. Start one: twelvefold worker --lane {missing[0]}"
        return Finding("workers", "wrong", told)
    return Finding("workers", "ok", ", ".join(f"{living[lane]} serve {lane}" for lane in LANES) + ".")


def _schedules(late: list[str]) -> Finding:
    if late:
        told = (
            f"{', '.join(late[:5])} should have fired over {OVERDUE_S:g} s ago. Is a worker running that knows the "
            "agent, and does it reach the database? See what it logs."
        )
        return Finding("schedules", "wrong", told)
    return Finding("schedules", "ok", "None is overdue.")


def _broker(settings: Settings) -> Finding:
    lanes = Lanes(settings.broker_url.get_secret_value(), settings.lane_prefix)
    try:
        if lanes.length("steps") is None:
            told = "It does not answer. Check BROKER_URL, and start it; nothing is lost meanwhile, only late."
            return Finding("broker", "wrong", told)
        policy = lanes.policy()
    finally:
        lanes.close()
    if policy is None:
        return Finding("broker", "note", "It answers and does not tell its maxmemory-policy, which must be noeviction.")
    if policy != "noeviction":
        told = f"Its maxmemory-policy is {policy}, so it may drop doorbells. Set: maxmemory-policy noeviction"
        return Finding("broker", "wrong", told)
    return Finding("broker", "ok", "It answers and evicts nothing.")


def _agents(settings: Settings) -> Finding:
    try:
        names = sorted(registry.load(settings.agent_modules).loaded)
    except (DeclarationError, ImportError) as error:
        return Finding("agents", "wrong", f"They do not load: {error}")
    if not names:
        return Finding("agents", "wrong", f"There is none in {settings.agent_modules}. Check AGENT_MODULES.")
    return Finding("agents", "ok", f"{', '.join(names)} loaded.")


def _model(settings: Settings) -> Finding:
    if settings.openai_api_key is None:
        return Finding("model", "note", "No OPENAI_API_KEY is set: agents run on their scripted models.")
    return Finding(
        "model", "ok", f"{settings.model} at {settings.openai_base_url or 'the default address'}; not asked now."
    )


def _probed(settings: Settings) -> Finding:
    where = f"{settings.model} at {settings.openai_base_url or 'the default address'}"
    try:
        found = probed(settings)
    except (Fatal, Transport, *UNAVAILABLE) as error:
        why = str(error) if isinstance(error, Fatal | Transport) else kind_of(error)
        return Finding("model", "wrong", f"{where} was asked and cannot be used: {why}")
    lacks = [name for name in ("tool_choice", "strict", "parallel", "seed") if not getattr(found, name)]
    less = f", without {', '.join(lacks)}" if lacks else ""
    way = "tool calls" if found.form == "tools" else "a json_schema"
    return Finding("model", "ok", f"{where} decides with {way}{less}; workers that start from now on know.")


def _mail(settings: Settings) -> Finding:
    if settings.smtp_host is None:
        return Finding("mail", "note", "SMTP_HOST is not set: letters by mail end as failed.")
    where = f"{settings.smtp_host}:{settings.smtp_port}"
    try:
        opened: Callable[..., smtplib.SMTP] = smtplib.SMTP_SSL if settings.smtp_tls == "implicit" else smtplib.SMTP
        with opened(settings.smtp_host, settings.smtp_port, timeout=SMTP_S) as server:
            server.ehlo()
            secured = settings.smtp_tls != "starttls" or server.has_extn("starttls")
    except (OSError, smtplib.SMTPException) as error:
        return Finding(
            "mail", "wrong", f"{where} does not answer ({kind_of(error)}). Check SMTP_HOST, SMTP_PORT, SMTP_TLS."
        )
    if not secured:
        return Finding(
            "mail", "wrong", f"{where} offers no STARTTLS. Set SMTP_TLS=implicit, or none on a trusted network."
        )
    return Finding("mail", "ok", f"{where} answers; nothing was sent.")


def _mail_in(settings: Settings) -> Finding:
    if settings.mail_in_domain is None:
        return Finding("mail-in", "note", "TWELVEFOLD_MAIL_IN_DOMAIN is not set: letters cannot be answered by mail.")
    if not settings.link_secrets:
        told = "TWELVEFOLD_LINK_SECRETS is missing: without a secret no reply address can be signed."
        return Finding("mail-in", "wrong", told)
    if settings.mail_authserv is None:
        told = "TWELVEFOLD_MAIL_AUTHSERV is not set: no sender is proven, so a reply by mail is only a comment."
        return Finding("mail-in", "note", told)
    return Finding("mail-in", "ok", f"Letters are answered at {settings.mail_in_domain}.")


def _links(settings: Settings) -> Finding:
    missing = [
        name
        for name, value in (
            ("TWELVEFOLD_PUBLIC_URL", settings.public_url),
            ("TWELVEFOLD_LINK_SECRETS", settings.link_secrets),
        )
        if not value
    ]
    if missing:
        told = f"{' and '.join(missing)} missing: mails that ask for approval have no link and name the command line."
        return Finding("links", "note", told)
    return Finding("links", "ok", f"Mails link to {settings.public_url}.")
