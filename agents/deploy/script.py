"""What the scripted model decides in the place of a real one, so that the demo runs without a key."""

from __future__ import annotations

from typing import Any

from twelvefold import Done, NothingToDo, Task
from twelvefold.tool import Tool

from .tools import Changes, Deploy, ListChanges, Released, Report, changes


def script(task: Task) -> Tool[Any]:
    """Look, ask for the deployment, report."""
    released = task.event
    if not isinstance(released, Released):
        return NothingToDo(reason="The scripted model answers no questions. Set OPENAI_API_KEY for a real one.")
    prefetched = task.prefetched(changes)
    known = Changes.model_validate(prefetched) if prefetched else task.last(ListChanges)
    if known is None:
        return ListChanges(repository=released.repository)
    deployment = task.last(Deploy)
    if deployment is not None:
        return Done(outcome=Report(**deployment.model_dump(include={"repository", "tag", "run", "summary"})))
    if any(earlier.tag == released.tag for earlier in known.deployments):
        return NothingToDo(reason=f"{released.tag} is deployed already.")
    if task.denied(Deploy):
        return NothingToDo(reason=f"{released.tag} stays where it is: the answer was no.")
    return Deploy(repository=released.repository, tag=released.tag, summary=_summary(released, known))


def _summary(released: Released, known: Changes) -> str:
    count, authors = len(known.commits) + known.more, ", ".join(sorted({commit.author for commit in known.commits}))
    brings = f"{count} commit{'' if count == 1 else 's'} by {authors[:200]}"
    follows = f"It follows {known.deployments[0].tag}." if known.deployments else "Nothing was deployed before."
    return f"{released.tag} by {released.author}, with {brings if count else 'no commit that was seen'}. {follows}"
