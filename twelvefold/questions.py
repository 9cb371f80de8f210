"""A question to a person: the call `ask_human`, and what an answer to it has to be.

An answer executes nothing and is never an approval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .tool import Kind, Tool

if TYPE_CHECKING:
    from .state import Task

ASKING = "asking"
"""The reason of a state that has to ask a person how to go on."""
LONGEST_ANSWER = 4000
LONGEST_CHOICE = 100


class Fact(BaseModel):
    """One thing that whoever answers has to know."""

    model_config = ConfigDict(frozen=True)
    name: str = Field(max_length=60, examples=["order"])
    value: str = Field(max_length=500, examples=["ord_81f2, delivered on 3 May"])


class AskHuman(Tool[str]):
    """Ask a person and wait for the answer. Use when only a person knows it or may choose; an answer permits nothing.

    Waiting holds nothing. What does not fit the format goes back to whoever answered.
    """

    __kind__: ClassVar[Kind] = "control"

    reason: str = Field(min_length=1, max_length=1000, description="The question, and why you ask it.")
    context: list[Fact] = Field(default_factory=list, max_length=10, description="What one has to know to answer.")
    format: Literal["free", "yes_no", "choice"] = "free"
    choices: list[str] = Field(default_factory=list, max_length=10, description="Only with choice: what can be chosen.")
    urgency: Literal["low", "normal", "high"] = "normal"
    target: str = Field(description="Who is asked, by name.")

    @model_validator(mode="after")
    def _choices_fit(self) -> AskHuman:
        kept = {choice.strip().casefold() for choice in self.choices} - {""}
        if self.format != "choice" and self.choices:
            raise ValueError('choices belong to format="choice"; leave them out.')
        if self.format == "choice" and not 2 <= len(self.choices) == len(kept):
            raise ValueError('format="choice" needs 2 to 10 different choices. Example: ["refund", "replace"]')
        if any(len(choice) > LONGEST_CHOICE or "\n" in choice for choice in self.choices):
            raise ValueError(f"A choice is one line of at most {LONGEST_CHOICE} characters; explain it in the context.")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """What can be answered, as it is stored; empty where any text can."""
        return ("yes", "no") if self.format == "yes_no" else tuple(choice.strip() for choice in self.choices)

    def answer_schema(self) -> dict[str, Any]:
        """What an answer has to be, as a JSON schema."""
        if self.options:
            return {"type": "string", "enum": list(self.options)}
        return {"type": "string", "minLength": 1, "maxLength": LONGEST_ANSWER}

    def read_answer(self, text: str) -> str:
        """The answer as it is stored. Raises ValueError that tells a person what is expected."""
        said = text.strip()
        if not self.options:
            if 0 < len(said) <= LONGEST_ANSWER:
                return said
            raise ValueError(f"Answer in 1 to {LONGEST_ANSWER} characters.")
        found = [option for option in self.options if option.casefold() == said.casefold()]
        if not found:
            raise ValueError(f"Answer with one of these and nothing else: {', '.join(self.options)}.")
        return found[0]


class AskWhenStuck(AskHuman):
    """The same for an agent whose model may ask nobody: only code asks, when the run is stuck."""

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Only in the moment in which code asks."""
        return task.state.reason == ASKING
