"""Cases of an agent, in `evals/*.json` of its folder: what comes in, what its tools return, what has to come of it.

    {"message": {"text": "Refund order 7"},
     "results": {"look_up": {"order_id": "7", "paid": "12.00"}, "refund": {"id": "r1"}},
     "approve": true,
     "part": "refunds.md",
     "expect": {"status": "done", "calls": ["look_up", "refund"], "never": ["close_account"],
                "outcome": {"refunded": true}, "says": ["12.00"], "decisions": 6}}

Only `message` and `expect` have to be there, and of `expect` what one cares about. `part` is the prompt file that the
case is about; without one it counts for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twelvefold.canonical import sha256
from twelvefold.errors import DeclarationError
from twelvefold.events import Finished

from .registry import Loaded
from .trial import Ask, Trial, as_text, called


class Expected(BaseModel):
    """What has to come of it: `calls` in this order, others between them; `outcome` at least these members; `says`
    texts that occur in the outcome; at most so many `decisions`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: str | None = None
    calls: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    outcome: dict[str, Any] = Field(default_factory=dict)
    says: tuple[str, ...] = ()
    decisions: int | None = Field(default=None, ge=1)


class Case(BaseModel):
    """One case. `approve` decides what is asked of people, `answer` what they say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    message: Any
    expect: Expected
    results: dict[str, Any] = Field(default_factory=dict)
    approve: bool = True
    answer: str = "yes"
    part: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a case: what was not as expected, nothing when it passed."""

    case: str
    missed: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Score:
    """How often the cases that are about a prompt part passed; the part is named by its hash, so that two prompts can
    be compared.
    """

    part: str
    hash: str
    passed: int
    runs: int


def cases(folder: Path) -> list[Case]:
    """The cases of an agent's folder. Raises DeclarationError that names the file and what is wrong in it."""
    found = []
    for path in sorted((folder / "evals").glob("*.json")):
        try:
            case = Case.model_validate_json(path.read_bytes())
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
            raise DeclarationError(f"evals/{path.name} is no case: {told}. See docs/models.md.") from None
        found.append(case.model_copy(update={"name": case.name or path.stem}))
    return found


def evaluate(loaded: Loaded, found: list[Case], runs: int, ask: Ask) -> Iterator[Run]:
    """Every case so many times. Raises what the model raises."""
    for case in found:
        for _ in range(runs):
            trial = Trial(loaded, ask, case.results, approve=case.approve, answer=case.answer).play(case.message)
            yield Run(case.name, tuple(_missed(case.expect, trial)), trial.task.state.used.tokens)


def scores(loaded: Loaded, found: list[Case], done: list[Run]) -> list[Score]:
    """Per prompt part how often its cases passed."""
    about = {case.name: case.part for case in found}
    rows = []
    for part in loaded.parts:
        mine = [run for run in done if about[run.case] in ("", part.name, part.name.rpartition("/")[2])]
        rows.append(Score(part.name, sha256(part.text)[:12], sum(not run.missed for run in mine), len(mine)))
    return rows


def _missed(expect: Expected, trial: Trial) -> Iterator[str]:
    state, calls = trial.task.state, called(trial.events)
    ended = [event for event in trial.events if isinstance(event, Finished)]
    outcome = ended[-1].outcome if ended else None
    if expect.status is not None and state.status != expect.status:
        yield f"status {state.status}, not {expect.status}"
    left = iter(calls)
    if not all(name in left for name in expect.calls):
        yield f"calls {', '.join(calls) or 'none'}, not {', '.join(expect.calls)}"
    yield from (f"called {name}" for name in expect.never if name in calls)
    for name, value in expect.outcome.items():
        got = outcome.get(name) if isinstance(outcome, dict) else None
        if got != value:
            yield f"{name} is {got!r}, not {value!r}"
    yield from (f"does not say {text!r}" for text in expect.says if text not in as_text(outcome))
    if expect.decisions is not None and state.used.decisions > expect.decisions:
        yield f"{state.used.decisions} decisions, not at most {expect.decisions}"
