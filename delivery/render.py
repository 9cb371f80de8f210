"""What letters say, as Markdown: a question, an outcome, a failure, a digest. Every channel shows the same source in
its own form. Text of others stands in blocks that are shown letter by letter, and nothing is left out without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .markdown import facts, fenced, joined, link, words

Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to answer: a sentence, and a link, a word or commands that go with it."""

    says: str
    link: str = ""
    label: str = ""
    commands: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """As Markdown."""
        parts = [words(self.says)]
        parts += [link(self.label or "Open the page", self.link)] if self.link else []
        parts += ["\n".join(f"- `{command}`" for command in self.commands)] if self.commands else []
        return "\n\n".join(parts)


def question(
    opening: str, known: Rows, shown: Rows, says: tuple[str, str, Rows], ways: Sequence[Way], head: str
) -> str:
    """What a person is asked. `known`: facts; `shown`: titles and texts of what would be done, each in full; `says`: a
    title over what the agent says, and what it adds; `ways`: how to answer, under `head`.
    """
    title, text, more = says
    return joined([
        words(opening), "## Facts", facts(known), *_blocks(shown), f"## {words(title)}", fenced(text),
        *_blocks(more), f"## {words(head)}", *(way.source for way in ways),
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended, for people: `what` is the agent's own Markdown, or `value` a text shown as it is."""

    title: str
    why: str
    what: str = ""
    value: str = ""
    cost: Rows = ()
    timeline: Sequence[str] = ()
    missing: int = 0
    about: Rows = ()


def outcome(ended: Ended) -> str:
    """A result: what, why, what it rests on and what it cost."""
    return joined([f"# {words(ended.title)}", words(ended.why), *_result(ended), *_rests_on(ended)])


def failure(ended: Ended, then: str) -> str:
    """A run that ended without a result, and what to do about it."""
    return joined([
        f"# {words(ended.title)}", words(ended.why), *_result(ended), "## What you can do", words(then),
        *_rests_on(ended),
    ])  # fmt: skip


def digest(ended: Ended, leave: str) -> str:
    """A result that people subscribe to, with the way to end that."""
    parts = [f"# {words(ended.title)}", *_result(ended), *_rests_on(ended)]
    return joined([*parts, link("Stop these letters", leave) if leave else ""])


def _result(ended: Ended) -> list[str]:
    return [ended.what, fenced(ended.value) if ended.value else ""]


def _rests_on(ended: Ended) -> list[str]:
    told = [f"- {words(line)}" for line in ended.timeline]
    if ended.missing:
        told = [f"- ({ended.missing} earlier events are not shown)", *told]
    return [
        "## What happened" if told else "", "\n".join(told), "## Cost" if ended.cost else "", facts(ended.cost),
        "## About" if ended.about else "", facts(ended.about),
    ]  # fmt: skip


def _blocks(rows: Rows) -> list[str]:
    return [part for title, text in rows for part in (f"**{words(title)}:**", fenced(text))]
