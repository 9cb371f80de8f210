"""Which texts of a request a commit has to write: those that this process does not know to be stored."""

from __future__ import annotations

from typing import Any

from .work import Runtime, Work

Texts = list[dict[str, Any]]
MOST_KNOWN = 50_000
"""So many names are kept; then all are forgotten, and texts are sent once more for nothing."""


def new_texts(work: Work, run: Runtime) -> tuple[Texts, Texts]:
    """The shared texts and the task's own as a commit takes them; shared ones in order, so that two commits that write
    the same ones wait for each other and never in a circle.
    """
    shared: dict[str, dict[str, Any]] = {}
    rendered: dict[str, dict[str, Any]] = {}
    for text in work.texts:
        mine = text.seq is not None
        if (work.held.id if mine else "", text.hash) in run.stored:
            continue
        if mine:
            rendered[text.hash] = {"hash": text.hash, "seq": text.seq, "text": text.text}
        else:
            commit = run.settings.commit if text.source else ""
            shared[text.hash] = {"hash": text.hash, "text": text.text, "source": text.source, "commit": commit}
    return [shared[name] for name in sorted(shared)], list(rendered.values())


def were_stored(work: Work, run: Runtime) -> None:
    """The commit has returned: nobody needs to send these again."""
    if len(run.stored) > MOST_KNOWN:
        run.stored.clear()
    run.stored.update((work.held.id if text.seq is not None else "", text.hash) for text in work.texts)
