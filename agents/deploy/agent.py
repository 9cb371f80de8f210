"""Deploy: a published release is looked at, a person is asked, and the pipeline takes it into production.

Pushes to the default branch are remembered by code alone: they tell what a release brings, and nobody is asked. Only a
published release is deployed, and only the one that opened the task.
"""

from __future__ import annotations

from datetime import timedelta

from twelvefold import Agent, Budget, Message, NothingToDo, Task, on, to

from .tools import (
    RELEASES,
    Deploy,
    KeepCommits,
    ListChanges,
    Pushed,
    Released,
    Report,
    about,
    changes,
    from_push,
    from_release,
)


def remember_pushes(task: Task) -> KeepCommits | NothingToDo | None:
    """A push needs no model: its commits are kept, and the next release brings them out."""
    pushed = task.event
    if not isinstance(pushed, Pushed):
        return None
    if not task.did(KeepCommits):
        return KeepCommits(repository=pushed.repository, commits=pushed.commits)
    return NothingToDo(reason=f"{len(pushed.commits)} commits on {pushed.branch} are kept for the next release.")


def deployed(task: Task) -> str | None:
    """Done means that the release is out; a question of a person is done when it is answered."""
    if task.did(Deploy) or isinstance(task.event, Message):
        return None
    return "Nothing is deployed yet: call deploy, or nothing_to_do when it must not or need not happen."


agent = Agent(
    accepts=Released | Pushed | Message,
    returns=Report,
    about=about,
    tools=[ListChanges, Deploy, KeepCommits],
    prefetch=[changes],
    steer=remember_pushes,
    success=[deployed],
    hosts=["pipeline"],
    budget=Budget(decisions=8, tokens=40_000, active=timedelta(minutes=2)),
    triggers=[
        on.webhook("github", type="release.published", read=from_release),
        on.webhook("github", type="push", read=from_push),
    ],
    delivery=[to.email(RELEASES, when="done"), to.email(RELEASES, when="failed"), to.log("deployments")],
    subject=lambda report: f"Deployed {report.repository} {report.tag}" if report.run else "About releases",
)
