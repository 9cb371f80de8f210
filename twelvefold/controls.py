"""The calls of the core itself: ending, waiting, handing on. They need no code outside the reducer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .tool import Kind, Tool

if TYPE_CHECKING:
    from .state import Task

MONTH_S = 30 * 24 * 3600


class Control(Tool[None]):
    """A call that the reducer carries out by itself."""

    __kind__: ClassVar[Kind] = "control"


class Done(Control):
    """Finish the task with its outcome. Use when everything asked for is done and confirmed by results you saw."""

    outcome: Any = Field(description="The result, in the shape that was asked for.")


class Explain(Control):
    """Answer what a person asks about the call that waits for them. Use when you are asked; the call stays as it is."""

    text: str = Field(
        min_length=1, max_length=500, examples=["The order came twice, so the second payment goes back."],
        description="What the person should know before they decide.",
    )  # fmt: skip

    @classmethod
    def offered(cls, task: Task) -> bool:
        """While a person who is to approve a call has asked about it, and never else."""
        return task.state.call is not None and task.state.call.phase == "questioned"


class NothingToDo(Control):
    """Finish without acting. Use when the event needs no action, for example a test delivery."""

    reason: str = Field(max_length=500, examples=["This release is a draft."])


class Wait(Control):
    """Pause until a time has passed or an outside event has come. Use instead of asking again and again.

    Waiting holds nothing: no process, no connection, no message.
    """

    why: str = Field(max_length=200, examples=["The pipeline reports back when it has finished."])
    seconds: int | None = Field(default=None, ge=1, le=MONTH_S, description="At most so long.")
    event: str | None = Field(default=None, max_length=200, description="The key of the event to wait for.")

    @model_validator(mode="after")
    def _something_to_wait_for(self) -> Wait:
        if self.seconds is None and self.event is None:
            raise ValueError("Give seconds, or an event, or both. Example: seconds=3600")
        return self


class NextPage(Control):
    """Open an event again that was cut or folded. Use when you need what is no longer shown, such as an exact id."""

    event: int = Field(ge=1, examples=[12], description="The number of the event.")
    page: int = Field(ge=1, examples=[2], description="The page, counted from 1.")

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Once something was cut or folded."""
        return task.state.view.paged > 0 or task.state.view.folded > 0


class Delegate(Control):
    """Hand a part of the work to another agent and get its result back. Use for what one of them is made for."""

    agent: str = Field(description="The name of the other agent.")
    request: str = Field(max_length=4000, description="What it should do, complete in itself.")


class PlanStep(BaseModel):
    """One step of a plan, in a few words."""

    model_config = ConfigDict(frozen=True)
    what: str = Field(min_length=1, max_length=200, examples=["look up the order"])
    done: bool = False


class Plan(Tool[str]):
    """Write down at most five steps for work that has several. Use before the first, and again when things turn out
    otherwise; the newest plan counts. It is a note to yourself and makes nothing happen.
    """

    __kind__: ClassVar[Kind] = "control"

    steps: list[PlanStep] = Field(min_length=1, max_length=5)
