"""What a state asks for next: the closed union of wants that a step carries out, one a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model for the next decision; events from `boundary` on are its window. Superseded results have given way
    to events below the first of `eased`, resolved errors to events below the second.
    """

    boundary: int
    eased: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Summarise:
    """Fold the events from the boundary to `last` into a summary."""

    last: int


@dataclass(frozen=True, slots=True)
class OpenPage:
    """Show again what was folded or cut."""


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Run the agent's prefetch functions side by side; no transaction open."""


@dataclass(frozen=True, slots=True)
class RunPreview:
    """Let a tool say what it would do, before a person is asked; no transaction open."""


@dataclass(frozen=True, slots=True)
class RunRead:
    """Run a Read; no transaction open."""


@dataclass(frozen=True, slots=True)
class RunWrite:
    """Run a Write inside the commit, after Begin's checks."""


@dataclass(frozen=True, slots=True)
class RunEffect:
    """Begin durably, then run an Effect; `attempt` counts from 1."""

    attempt: int
    key: str


@dataclass(frozen=True, slots=True)
class Find:
    """Ask the outside whether an effect in doubt happened."""


@dataclass(frozen=True, slots=True)
class Record:
    """Write our rows about an effect that is settled as happened."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Feed the happening that a quarantine held back; `seq` is where it stands."""

    seq: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something arrives or a deadline passes, or ever again."""


Want = (
    AskModel
    | Summarise
    | OpenPage
    | Prefetch
    | RunPreview
    | RunRead
    | RunWrite
    | RunEffect
    | Find
    | Record
    | Feed
    | Rest
)
"""Everything a step can be asked to do."""
