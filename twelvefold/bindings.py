"""Where an agent's events come from and where its results go, as data: `on.webhook(...)`, `to.email(...)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from .directory import is_name
from .errors import DeclarationError

_ADDRESS = re.compile(r"[^@\s,;<>]{1,64}@[^@\s,;<>]{1,253}")
When = Literal["done", "failed", "always"]
"""`done`: with a result. A run that found nothing to do is told to `always` only."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """What `read=` gives back for a delivery that opens no task; the arrival is kept with this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """What `read=` gives back for a delivery that opens no task and is the event others wait for by this key, as in
    `Wait(event="build-7")`; they are shown `data`.
    """

    key: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class WebhookBinding:
    """Deliveries of `source` whose type is `type` open a task; `read` maps the payload to what the agent accepts, or
    to an `Ignore` or a `Wake`.
    """

    source: str
    type: str
    read: Callable[[dict[str, Any]], Any] | None = None


@dataclass(frozen=True, slots=True)
class ApiBinding:
    """Messages that are posted without naming an agent open a task, where `takes` says yes to the text."""

    takes: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class FinishedBinding:
    """Every run of another agent that ends like this opens a task; `read` maps the `Ended` to what the agent accepts,
    or to an `Ignore`.
    """

    agent: str
    when: When = "done"
    read: Callable[[Any], Any] | None = None


def as_message(mail: Mapping[str, Any]) -> dict[str, Any]:
    """What a mail opens a task with unless `read=` says otherwise: own words, subject and address of its sender."""
    return {name: mail[name] for name in ("text", "subject", "sender")}


@dataclass(frozen=True, slots=True)
class EmailBinding:
    """Mails to `address` open a task. With `allow` only those of these senders, each an address or `*@domain`, whom our
    mail server proves. Mailing lists are heard only where `lists` has their List-Id. `read` maps a mail, as
    `triggers.mail.payload` gives it, to what the agent accepts.
    """

    source: str
    type: str
    allow: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    read: Callable[[dict[str, Any]], Any] | None = as_message

    def allows(self, sender: str) -> bool:
        """Whether mails of this address are taken."""
        return not self.allow or sender in self.allow or f"*@{sender.rpartition('@')[2]}" in self.allow


Dst = Literal["vixie", "skip", "utc"]
Overlap = Literal["skip", "buffer_one", "allow"]
CatchUp = Literal["latest", "all", "none"]
SCHEDULE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
MOST_JITTER = timedelta(hours=1)
MOST_WINDOW = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CronBinding:
    """At these times a task is opened with a `Tick`, or with what `read` makes of it (it may be an `Ignore`)."""

    name: str
    cron: str
    tz: str = "UTC"
    dst: Dst = "vixie"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    window: timedelta = timedelta(hours=1)
    jitter: timedelta = timedelta(0)
    read: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not SCHEDULE_NAME.fullmatch(self.name):
            raise DeclarationError(
                f"A schedule is named in lower-case letters, digits, - and _, such as 'sweep', not {self.name!r}."
            )
        choices = (("dst", self.dst, Dst), ("overlap", self.overlap, Overlap), ("catch_up", self.catch_up, CatchUp))
        for what, chosen, known in choices:
            if chosen not in get_args(known):
                raise DeclarationError(f"{self.name}: {what}= is one of {', '.join(get_args(known))}, not {chosen!r}.")
        if self.catch_up == "all" and self.overlap != "allow":
            raise DeclarationError(
                f"{self.name}: catch_up='all' needs overlap='allow', or the times that are made up for would get into "
                "each other's way and all but one be skipped."
            )
        limits = (("jitter", self.jitter, MOST_JITTER), ("window", self.window, MOST_WINDOW))
        for what, lasts, most in limits:
            if not timedelta(0) <= lasts <= most or lasts.microseconds:
                raise DeclarationError(f"{self.name}: {what}= is whole seconds from 0 to {most}, not {lasts}.")


REPLY = "reply"
"""The destination that is known only when a run ends: the place that it was begun from."""
Binding = WebhookBinding | ApiBinding | FinishedBinding | EmailBinding | CronBinding


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a result goes: a channel, a recipient and the outcomes it is sent for."""

    channel: str
    recipient: str
    when: When = "always"
    digest: bool = False
    """People subscribe to it and may leave; a question or a duty is never one."""


class on:
    """What opens a task."""

    @staticmethod
    def webhook(source: str, *, type: str, read: Callable[[dict[str, Any]], Any] | None = None) -> WebhookBinding:
        """Deliveries at /hooks/{source} of this type, for GitHub `event.action` such as `release.published`."""
        if not source or not type:
            raise DeclarationError("on.webhook needs a source and a type, as in on.webhook('github', type='push').")
        return WebhookBinding(source, type, read)

    @staticmethod
    def slack(
        *, channel: str = "", command: str = "", read: Callable[[dict[str, Any]], Any] | None = None
    ) -> WebhookBinding:
        """Messages in Slack that mention the app or are written to it alone, in every channel or in the one with this
        id; or a slash command such as '/deploy'. They come as a Message.
        """
        if channel and command:
            raise DeclarationError("on.slack takes a channel or a command: a command is known by its name everywhere.")
        if command and not command.startswith("/"):
            raise DeclarationError(f"on.slack: a command is written as '/deploy', not {command!r}.")
        return WebhookBinding("slack", command or f"message {channel}".strip(), read)

    @staticmethod
    def finished(agent: str, *, when: When = "done", read: Callable[[Any], Any] | None = None) -> FinishedBinding:
        """The end of a run of another agent, once for each run: `done` with a result, `failed`, or `always`. It comes
        as an `Ended` where `read` makes nothing else of it.
        """
        if not agent or when not in ("done", "failed", "always"):
            raise DeclarationError("on.finished needs an agent and an ending: on.finished('deploy', when='done').")
        return FinishedBinding(agent, when, read)

    @staticmethod
    def email(
        address: str, *, allow: Sequence[str] = (), lists: Sequence[str] = (),
        read: Callable[[dict[str, Any]], Any] | None = None,
    ) -> EmailBinding:  # fmt: skip
        """Mails to this address. `allow=("ann@shop.example", "*@partner.example")` takes mails of proven senders."""
        if not _ADDRESS.fullmatch(address) or not all(_ADDRESS.fullmatch(each) for each in allow):
            raise DeclarationError(
                "on.email needs addresses, as in on.email('refunds@shop.example', allow=('*@shop.example',))."
            )
        return EmailBinding(
            "email", address.lower(), tuple(each.lower() for each in allow), tuple(each.lower() for each in lists),
            read or as_message,
        )  # fmt: skip

    @staticmethod
    def api(takes: Callable[[str], bool] | None = None) -> ApiBinding:
        """Messages posted to the API without naming an agent: those whose text `takes` says yes to, or, without it, all
        that no other agent takes. This is a router in code: no model is asked.
        """
        return ApiBinding(takes)

    @staticmethod
    def cron(
        cron: str,
        *,
        name: str,
        tz: str = "UTC",
        dst: Dst = "vixie",
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        window: timedelta = timedelta(hours=1),
        jitter: timedelta = timedelta(0),
        read: Callable[[Any], Any] | None = None,
    ) -> CronBinding:
        """At the times of a cron expression in the zone `tz`, as in on.cron("0 9 * * 1-5", name="sweep").

        `overlap` says what happens while the last task still runs (one that waits for a person does not), `catch_up`
        and `window` what happens to times that were missed; up to `jitter` is added to each, the same at every attempt.
        """
        return CronBinding(name, cron, tz, dst, overlap, catch_up, window, jitter, read)


class to:
    """Where results go."""

    @staticmethod
    def reply(*, when: When = "always") -> Destination:
        """Back to where the run was begun: the sender of the mail, in its thread, or the thread in Slack. A run that a
        schedule, a webhook or the API began has nobody to reply to, and a mail whose sender is not proven gets none.
        """
        return Destination(REPLY, "", when)

    @staticmethod
    def email(address: str, *, when: When = "always") -> Destination:
        """An e-mail to this address, or to everybody behind this name of the directory."""
        if "@" not in address and not is_name(address):
            raise DeclarationError(
                f"to.email needs a name of the directory or an address such as 'ops@shop.example', not {address!r}."
            )
        return Destination("email", address, when)

    @staticmethod
    def digest(address: str, *, when: When = "done") -> Destination:
        """An e-mail as `email`, which its readers may stop by one click."""
        return replace(to.email(address, when=when), digest=True)

    @staticmethod
    def slack(place: str, *, when: When = "always") -> Destination:
        """A message to a channel (`C012`), a thread of it (`C012:1700000000.000100`) or a person (`U012`) of Slack."""
        if not re.fullmatch(r"[CDGUW][A-Z0-9]{1,30}(:\d{1,12}\.\d{1,9})?", place):
            raise DeclarationError(f"to.slack needs an id of Slack, such as C012 for a channel, not {place!r}.")
        return Destination("slack", place, when)

    @staticmethod
    def webhook(target: str, *, when: When = "always") -> Destination:
        """A signed webhook to the target that TWELVEFOLD_WEBHOOK_TARGETS places under this name."""
        if not is_name(target):
            raise DeclarationError(f"to.webhook needs the name of a target of the settings, not {target!r}.")
        return Destination("webhook", target, when)

    @staticmethod
    def channel(name: str, recipient: str, *, when: When = "always") -> Destination:
        """A recipient of a channel that TWELVEFOLD_CHANNELS declares under this name."""
        if not is_name(name) or not recipient.strip():
            raise DeclarationError(f"to.channel needs a name and a recipient, not {name!r} and {recipient!r}.")
        return Destination(name, recipient, when)

    @staticmethod
    def log(name: str = "results", *, when: When = "always") -> Destination:
        """One line in the log, without content."""
        return Destination("log", name, when)
