"""The log's vocabulary: a closed union of what can have happened, each type with a version.

Its data is canonical JSON with default-valued fields left out; how it is stored and read back is in `record`.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue

from .canonical import canonical
from .tool import Kind
from .verdict import Risk

Outcome = Literal["done", "failed", "cancelled"]


class Event(BaseModel):
    """Something that happened. Frozen; the class name is the stored type."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="iso8601")
    version: ClassVar[int] = 1

    @cached_property
    def data(self) -> str:
        """The data as canonical JSON."""
        return canonical(self.model_dump(mode="json", exclude_defaults=True))

    def __copy__(self) -> Self:
        """A copy without the remembered `data`: whoever copies an event means to change it."""
        copied = super().__copy__()
        copied.__dict__.pop("data", None)
        return copied


class Spent(BaseModel):
    """What a model call cost: tokens are counts, usd money, ms milliseconds of work."""

    model_config = ConfigDict(frozen=True)
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal = Decimal(0)
    ms: int = 0


class Arrived(Event):
    """Something from outside reached the task."""

    kind: Literal["message", "event", "control"]
    source: str
    key: str
    payload: JsonValue = None
    sender: str | None = None
    wait_key: str | None = None
    cleaned: int = 0
    unproven: bool = False
    """Nobody showed that the sender sent it: the text may be anybody's."""


class Reopened(Event):
    """A finished task begins a new run; `run` is its number, `by` the seq of the message that caused it."""

    run: int
    by: int


class Prefetched(Event):
    """What code looked up before the run's first decision, by the name of each function; `failed` says why not."""

    found: dict[str, JsonValue] = {}
    failed: dict[str, str] = {}
    at: datetime | None = None
    """When the looks began: what they found was so then."""
    ms: int = 0


class ModelAsked(Event):
    """One question to a model: what it saw (receipt) and what it cost. The answer is the next event."""

    model: str
    request: str
    receipt: JsonValue = None
    boundary: int = 0
    eased: tuple[int, int] = (0, 0)
    """Superseded results gave way to events below the first, resolved errors to events below the second."""
    prefix: str = ""
    broke: bool = False
    """The window does not begin as the last one did, so that a provider's cache of it does not help."""
    lost: int = 0
    """Calls of dead workers before this one; their estimate is part of `spent`."""
    spent: Spent = Spent()
    request_id: str | None = None
    fingerprint: str | None = None
    raw: str = ""
    scripted: bool = False
    role: str = "decide"
    instead: tuple[str, ...] = ()
    """Models that were asked before this one and did not answer, each with why: `model: kind`."""
    made_of: JsonValue = None
    """The hashes of the stored texts that the request was made of; joined, they hash to `request`."""


class Throttled(Event):
    """Nothing was asked: the limit that all clients of the model share is used up until then."""

    until: datetime


class Decided(Event):
    """A call was chosen by the model or by code, with the verdict of its approval rule."""

    tool: str
    args: str
    kind: Kind
    by: Literal["model", "code"] = "model"
    verdict: Literal["auto", "ask", "deny"] = "auto"
    reason: str = ""
    digest: str = ""
    about: str | None = None
    further: bool = False
    """True for the second and later READ of one reply: it costs no decision."""


class Rejected(Event):
    """The model's reply could not be used; the text teaches it why."""

    kind: str
    text: str
    tool: str | None = None


class PolicyDenied(Event):
    """The call must not run."""

    call: int
    why: str


class Previewed(Event):
    """What the call would do, as its tool said before a person is asked."""

    call: int
    shown: JsonValue = None
    fingerprint: str = ""
    ms: int = 0


class ApprovalAsked(Event):
    """A person has to approve the call until the deadline; `args` are the arguments where an upgrade changed them.
    Of the kind `question`: a person has to answer it.
    """

    call: int
    args: str = ""
    digest: str
    verdict: str
    target: str = ""
    reason: str = ""
    risk: Risk = "medium"
    deadline: datetime
    kind: Literal["approval", "question"] = "approval"
    editor: str = ""
    """Who edited the arguments, so that they have to be asked about again."""


class ApprovalMoved(Event):
    """The approval of the call reached a state. `edited`: the call goes on with other arguments, asked anew;
    `more_info` and `explained`: a person asks back, and the agent's word on it; an answered question has its answer as
    the `result`.
    """

    call: int
    to: Literal[
        "reminded", "escalated", "more_info", "explained", "approved", "approved_with_edits", "edited", "rejected",
        "expired", "superseded", "stale", "answered",
    ]  # fmt: skip
    by: str | None = None
    comment: str = ""
    reason: str = ""
    result: str = ""
    votes: tuple[str, ...] = ()
    """All who approved, where more than one had to."""
    args: str = ""
    """The arguments as a person edited them; `changed` holds what each was and is, `digest` binds the approval."""
    changed: dict[str, JsonValue] = {}
    digest: str = ""
    grant: str = ""
    """The grant that approved it: nobody was asked."""
    then: Literal["", "park", "allow"] = ""
    """What an expired question comes to, where that is not a denial."""


class Started(Event):
    """The effect may have reached the outside from here on."""

    call: int
    key: str
    attempt: int
    digest: str


class Returned(Event):
    """The call ended with a result; `shown` is what the model sees where that differs."""

    call: int
    result: JsonValue = None
    shown: JsonValue = None
    about: str | None = None
    ms: int = 0
    check: str = ""
    """What the tool's own check found wrong with the result."""
    tainted: bool = False
    """It was remembered by a task that had read text of an unproven sender."""


class Failed(Event):
    """It did not happen: a tool (`call`), or a model call (`call` is None). `not_before` is when to try again."""

    call: int | None = None
    type: str
    message: str
    affected: tuple[str, ...] = ()
    suggestion: str | None = None
    retry_after: int | None = None
    not_before: datetime | None = None
    attempt: int = 1
    then: Literal["", "retry", "operator"] = ""
    ms: int = 0


class Doubted(Event):
    """The effect was begun and nobody knows whether it happened; `settle_at` is when `find` may be believed."""

    call: int
    attempt: int
    reason: str
    then: Literal["ask", "find", "same_key"]
    settle_at: datetime | None = None
    ms: int = 0


class Settled(Event):
    """The doubt is over: it happened, it did not, or nobody will ever tell (abandoned)."""

    call: int
    how: Literal["happened", "not", "abandoned", "unknown"]
    by: str
    result: JsonValue = None
    settle_at: datetime | None = None


class Woke(Event):
    """A deadline passed; `passed` names which, in order."""

    passed: tuple[str, ...]


class ChildStarted(Event):
    """Another agent's task was born from this call; its budget is charged now."""

    call: int
    child: str
    agent: str
    request: str
    decisions: int
    tokens: int
    usd: Decimal
    active_ms: int


class ChildReturned(Event):
    """A child ended; what it did not use comes back if the run is still the one that paid."""

    child: str
    run: int
    status: Outcome
    result: JsonValue = None
    decisions: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)
    active_ms: int = 0
    tainted: bool = False
    """The child had read text of an unproven sender."""


class Folded(Event):
    """The events from first to last left the window: the text stands for them and for all that was folded before.
    `hash` is theirs, so that whoever opens them again can tell that they are the same.
    """

    first: int
    last: int
    text: str
    hash: str
    by: Literal["model", "rule"] = "rule"
    failed: int = 0
    """How many answers of a model could not be used before."""
    ms: int = 0


class LimitReached(Event):
    """The budget's dimension is used up: no further decision until it is raised. A `scope` names a budget that tasks
    share, which is over until a time.
    """

    dimension: str
    used: str
    limit: str
    scope: str = ""
    until: datetime | None = None


class Stuck(Event):
    """The run does not get on: repeated failures, unusable replies or the same calls again."""

    reason: str
    then: Literal["operator", "failed", "ask"]


class Blocked(Event):
    """A freeze stopped the call before it began."""

    call: int
    scope: str
    until: datetime | None = None
    reason: str = ""


class CancelAsked(Event):
    """Someone asked for the end of this task."""

    by: str
    reason: str = ""


class DoneRefused(Event):
    """Done came too early; why is what the model reads."""

    call: int
    why: str


class Finished(Event):
    """The run ended. `unused` of a child's budget goes back to its parent."""

    status: Outcome
    outcome: JsonValue = None
    reason: str = ""


class Quarantined(Event):
    """Our own code failed; `held` is what happened and is not yet folded, as [type, version, data] triples."""

    reason: str
    held: JsonValue = None


class Resumed(Event):
    """An operator set the task going again: `verb` is retry or raise; a raise adds to the budget, and `deadline` takes
    the place of the run's absolute end.
    """

    by: str
    verb: Literal["retry", "raise"]
    decisions: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)
    active_ms: int = 0
    deadline: datetime | None = None


TYPES: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Arrived, Reopened, Prefetched, ModelAsked, Decided, Rejected, PolicyDenied, Previewed, ApprovalAsked,
        ApprovalMoved, Started, Returned, Failed, Doubted, Settled, Woke, ChildStarted, ChildReturned, LimitReached,
        Stuck, Blocked, CancelAsked, DoneRefused, Finished, Quarantined, Resumed,
        Folded, Throttled,
    )
}  # fmt: skip
