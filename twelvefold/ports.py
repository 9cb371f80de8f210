"""The seams between core and shell: what the core asks of a model, a channel and the outside, as protocols.

Values that cross a seam are frozen dataclasses; the shell implements the protocols, tests implement them again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable


class Facts(Protocol):
    """What a task has seen, by token (see `facts`)."""

    def held(self, tokens: Collection[str], *, told: bool) -> Collection[str]:
        """Those of the tokens that stand in an event that may be a source: of ids, or of what is reported (`told`)."""

    def near(self, token: str) -> Sequence[str]:
        """Ids that could have been meant by this one."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. `menu` holds portable tool schemas: {name, description, parameters}."""

    agent: str
    model: str
    system: str
    user: str
    menu: tuple[dict[str, Any], ...]
    temperature: float
    seed: int
    max_tokens: int
    timeout: float
    body: str = ""
    """The request as it goes over the wire, as JSON text; empty where the model writes it itself."""
    task: Any = None
    """The task as agent code sees it (`twelvefold.Task`); only a scripted model may look at it."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call as the model wrote it: `arguments` is unparsed JSON text."""

    name: str
    arguments: str
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What the model answered, before anything is believed. Tokens are counts, `duration_ms` milliseconds."""

    calls: tuple[ProposedCall, ...] = ()
    text: str | None = None
    refusal: str | None = None
    finish: str = "stop"
    raw: str = ""
    request_id: str | None = None
    model: str = ""
    fingerprint: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0


class Model(Protocol):
    """A model. Raises Transport when trying later may help, Fatal when it cannot."""

    def ask(self, request: ModelRequest) -> ModelReply: ...


@dataclass(frozen=True, slots=True)
class Letter:
    """One message on its way out, complete at commit. `id` is the stable identity of the message."""

    id: str
    channel: str
    recipient: str
    subject: str
    text: str
    created_at: datetime
    source: str = ""
    """The same as Markdown, where there is one; `text` is made from it."""
    bounces: str = ""
    """Where it comes back to when it cannot be delivered, in place of the sender."""
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    """The ids of our own earlier letters of the same conversation, oldest first."""
    headers: dict[str, str] = field(default_factory=dict)
    choices: bool = False
    """It asks for an approval that can be given where the letter is shown, by who is known there."""
    data: dict[str, Any] = field(default_factory=dict)
    """The result as values, for programs."""
    thread: str = ""
    """The receipt of the first of them: where a channel with threads goes on."""
    replaces: tuple[str, ...] = ()
    """The receipts of the letters that this one takes the place of, where the channel can change what was sent."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The other side took the message; `reference` is its name there, such as a Message-ID."""

    reference: str
    detail: str = ""
    refused: tuple[str, ...] = ()
    """What was said of each recipient who did not get it, while others did."""


Holds = Literal["letter", "destination", "channel", "closed"]


class NotSent(Exception):
    """It certainly did not go out. `retry` says whether trying later may help; `retry_after` is in seconds, and `holds`
    says what waits so long: this letter, all to its destination, or all of the channel; `closed`: its destination takes
    no more letters until an operator opens it. `partly`: a first part of it did go out, so it is looked for.
    """

    def __init__(
        self, reason: str, *, retry: bool, retry_after: float | None = None, holds: Holds = "letter",
        partly: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.partly = partly
        self.reason = reason
        self.retry = retry
        self.retry_after = retry_after
        self.holds = holds


class PerhapsSent(Exception):
    """Nobody can tell whether it went out, as when the line dropped after the last byte."""


class Channel(Protocol):
    """A way out. Raises NotSent or PerhapsSent; any other exception counts as PerhapsSent."""

    def push(self, letter: Letter) -> Receipt: ...


@runtime_checkable
class Finds(Channel, Protocol):
    """A channel that can tell whether a letter is there already, so that one in doubt is never sent twice."""

    def find(self, letter: Letter) -> Receipt | None:
        """The receipt of a letter that did arrive; None when sending it now is right: it is not there, or the other
        side knows it by its id and takes it once. Raises NotSent when that cannot be told now.
        """
        ...


@runtime_checkable
class Patient(Channel, Protocol):
    """A channel that waits between attempts as its own rules say."""

    waits: tuple[float, ...]
    """Seconds after each attempt; the one after the last is the end."""


@runtime_checkable
class Paced(Channel, Protocol):
    """A channel whose destinations take so many letters and no more."""

    def pace(self, recipient: str) -> tuple[str, float]:
        """The name of the recipient's destination, and the seconds between two letters to it."""
        ...
