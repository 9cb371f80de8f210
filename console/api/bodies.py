"""What may be in a body or a query. A member that is not known is refused: it may have been meant."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    model_validator,
)

Words = Annotated[StrictStr, StringConstraints(min_length=1, pattern=r"\S")]
Name = Annotated[StrictStr, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\r\n]*[^\s][^\r\n]*$")]


MOST = 10**9


class Body(BaseModel):
    """Frozen, and closed against unknown members."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Body):
    """A smaller budget than the agent's: `usd` is money, `active` and `deadline` are seconds."""

    decisions: Annotated[StrictInt, Field(ge=1)] | None = None
    tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    usd: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)] | None = None
    active: Annotated[timedelta, Field(gt=timedelta(0))] | None = None
    deadline: Annotated[timedelta, Field(gt=timedelta(0))] | None = None


class Launch(Body):
    """`POST /thread`: a message in words, or an event as the agent accepts it."""

    message: Words | None = None
    event: Any = None
    agent: Name | None = None
    delivery: Name | Annotated[list[Name], Field(min_length=1, max_length=10)] | None = None
    business_ref: Name | None = None
    budget: Limits | None = None


class Response(Body):
    """`POST /thread/{id}/response`: words for the thread."""

    type: Literal["response"]
    response: Words
    call_id: StrictInt | None = None


class Granted(Body):
    """For which other calls an approval shall hold: those of this thread, or those whose `same` arguments are these."""

    hours: StrictInt
    this_thread: StrictBool = False
    same: list[StrictStr] = []


class Approval(Body):
    """`POST /thread/{id}/response`: yes or no to a call, as it was shown (`call_id`, `digest`, `seen`); with
    `edited_args` yes to these members in the place of those shown; or, with `more_info`, a question back to the agent.
    """

    type: Literal["approval"]
    approved: StrictBool | None = None
    more_info: Words | None = None
    comment: StrictStr = Field(default="", max_length=2000)
    call_id: StrictInt | None = None
    digest: StrictStr | None = None
    seen: StrictInt | None = None
    grant: Granted | None = None
    edited_args: Any = None


class Reason(Body):
    """`POST /thread/{id}/cancel`: why, for the log."""

    reason: StrictStr = Field(default="", max_length=2000)


class More(Body):
    """`POST /thread/{id}/raise`: what the run's budget gets; `active` is seconds, `deadline` the run's new end."""

    decisions: Annotated[StrictInt, Field(ge=0, le=MOST)] = 0
    tokens: Annotated[StrictInt, Field(ge=0, le=MOST)] = 0
    usd: Annotated[Decimal, Field(ge=0, le=MOST, allow_inf_nan=False, decimal_places=6)] = Decimal(0)
    active: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=30))] = timedelta(0)
    deadline: AwareDatetime | None = None

    @model_validator(mode="after")
    def _adds_something(self) -> More:
        if not any((self.decisions, self.tokens, self.usd, self.active, self.deadline)):
            raise ValueError('Say what to add. Example: {"decisions": 10}')
        return self


class Settle(Body):
    """`POST /thread/{id}/settle`: what became of an effect in doubt. `happened` comes with the `result` of the tool."""

    call_id: StrictInt
    how: Literal["happened", "not", "abandoned"]
    result: Any = None


class Decided(Body):
    """One of many decisions: the call as it was shown, and yes or no."""

    thread_id: UUID
    call_id: StrictInt
    digest: StrictStr
    approved: StrictBool
    comment: StrictStr = Field(default="", max_length=2000)


class Batch(Body):
    """`POST /approvals`: decisions about many calls; each is judged by itself."""

    decisions: Annotated[list[Decided], Field(min_length=1, max_length=50)]


class Throw(Body):
    """`POST /switches`: what to hold. `scope` is `*`, `agent:NAME` or, for a freeze, `tool:NAME`."""

    kind: Literal["freeze", "pause", "intake"]
    scope: Name
    until: AwareDatetime | None = None
    reason: StrictStr = Field(default="", max_length=500)


class Lift(Body):
    """`POST /switches/lift`: which switch ends."""

    kind: Literal["freeze", "pause", "intake"]
    scope: Name


class Times(Body):
    """When a schedule fires and how; `window` and `jitter` are seconds, `event` opens each in the place of a Tick."""

    cron: Annotated[StrictStr, Field(max_length=200)] | None = None
    tz: Annotated[StrictStr, Field(max_length=100)] | None = None
    dst: Literal["vixie", "skip", "utc"] | None = None
    overlap: Literal["skip", "buffer_one", "allow"] | None = None
    catch_up: Literal["latest", "all", "none"] | None = None
    window: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=30))] | None = None
    jitter: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(hours=1))] | None = None
    event: Any = None

    @property
    def given(self) -> dict[str, Any]:
        """What was said of it."""
        return {name: getattr(self, name) for name in Times.model_fields if getattr(self, name) is not None}


class New(Times):
    """`POST /schedules`: a schedule of this agent. With `dry_run` it is only shown what it would be."""

    agent: Name
    name: Name
    cron: Annotated[StrictStr, Field(max_length=200)]
    dry_run: StrictBool = False


class Named(Body):
    """`POST /schedules/pause` and `/resume`: which one, as `agent.name`."""

    name: Name


class Edit(Times):
    """`POST /schedules/edit`: what changes of the schedule `agent.name`."""

    name: Name


class Backfill(Named):
    """`POST /schedules/backfill`: the first and the last time to be made up for."""

    begin: AwareDatetime
    end: AwareDatetime


class Happened(Body):
    """`POST /events`: an outside event for whoever waits for its key."""

    key: Annotated[Name, Field(max_length=200)]
    data: Any = None


class Filters(Body):
    """`GET /thread`: which threads; `before` is the `next` of the last page."""

    status: Literal["ready", "waiting", "done", "failed", "cancelled", "quarantined"] | None = None
    waiting_for: str | None = None
    agent: str | None = None
    business_ref: str | None = None
    before: UUID | None = None
    limit: int = Field(default=50, ge=1, le=200)


class Reached(Body):
    """`GET /arrivals`: which of what reached us, the newest first."""

    state: Literal["accepted", "ignored", "failed", "unclaimed"] | None = None
    source: str | None = None
    limit: int = Field(default=50, ge=1, le=200)


class Page(Body):
    """`GET /thread/{id}/events`: the events after a seq."""

    after: int = Field(default=0, ge=0, le=2**31 - 1)
    limit: int = Field(default=200, ge=1, le=1000)


class Nothing(Body):
    """No members, no parameters."""
