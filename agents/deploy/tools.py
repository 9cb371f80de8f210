"""What the agent reads from GitHub, and what it can do: look at changes, keep commits, deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from twelvefold import Ctx, Effect, Ignore, Message, Read, Task, ToolError, Verdict, Write, ask, deny

from .tables import CommitRow, DeploymentRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

RELEASES = "releases@example.org"
"""Who is asked before a deployment and told about it afterwards."""
ENVIRONMENT = "production"
PIPELINE = "http://pipeline/deployments"
"""The pipeline is a service by name; TWELVEFOLD_SERVICES says where it stands."""
MOST_COMMITS = 30
MOST_EARLIER = 5


class Commit(BaseModel):
    """One commit, with the first line of its message."""

    sha: str
    author: str = ""
    message: str = ""


class Released(BaseModel):
    """A release that was published."""

    kind: Literal["release"] = "release"
    repository: str
    tag: str
    name: str = ""
    author: str = ""
    url: str = ""
    notes: str = ""


class Pushed(BaseModel):
    """Commits that reached the default branch, newest last."""

    kind: Literal["push"] = "push"
    repository: str
    branch: str
    commits: list[Commit]


class Deployment(BaseModel):
    """One run of the pipeline."""

    repository: str
    tag: str
    environment: str
    run: str
    summary: str = ""


class Changes(BaseModel):
    """What a repository has seen: deployments, newest first, and the commits pushed since the last one, newest first.

    `more` counts the commits that are not shown.
    """

    repository: str
    deployments: list[Deployment]
    commits: list[Commit]
    more: int = 0


class Report(BaseModel):
    """What came of it, for people."""

    repository: str
    tag: str = ""
    run: str = ""
    summary: str


def from_release(payload: dict[str, Any]) -> Released | Ignore:
    """GitHub's `release` payload; drafts and pre-releases are not for everybody yet."""
    release = payload["release"]
    if release.get("draft") or release.get("prerelease"):
        return Ignore("draft" if release.get("draft") else "prerelease")
    return Released(
        repository=payload["repository"]["full_name"],
        tag=release["tag_name"],
        name=release.get("name") or "",
        author=release["author"]["login"],
        url=release["html_url"],
        notes=release.get("body") or "",
    )


def from_push(payload: dict[str, Any]) -> Pushed | Ignore:
    """GitHub's `push` payload; only commits on the default branch can come out with a release."""
    repository, commits = payload["repository"], payload.get("commits") or []
    if payload["ref"] != f"refs/heads/{repository['default_branch']}":
        return Ignore("other_ref")
    if payload.get("deleted") or not commits:
        return Ignore("no_commits")
    return Pushed(
        repository=repository["full_name"],
        branch=repository["default_branch"],
        commits=[_commit(commit) for commit in commits[-MOST_COMMITS:]],
    )


def _commit(commit: dict[str, Any]) -> Commit:
    author = commit.get("author") or {}
    first_line = next(iter((commit.get("message") or "").splitlines()), "")
    return Commit(sha=commit["id"], author=author.get("username") or author.get("name") or "", message=first_line[:100])


def about(event: Released | Pushed | Message) -> str | None:
    """The business entity: a tag or a commit of a repository."""
    match event:
        case Released():
            return f"{event.repository}@{event.tag}"
        case Pushed():
            return f"{event.repository}@{event.commits[-1].sha[:12]}"
        case Message():
            return None


def changes(ctx: Ctx) -> Changes | None:
    """What has happened to the repository that the event is about."""
    event = ctx.task.event
    return None if isinstance(event, Message) else ListChanges(repository=event.repository).run(ctx)


def brings(known: dict[str, Any] | None) -> str:
    """What is out and what would come, told by code to the person who decides. `known` is what was prefetched."""
    if known is None:
        return "What is out now could not be looked up."
    seen = Changes.model_validate(known)
    out = f"Out now: {seen.deployments[0].tag}." if seen.deployments else "Nothing is out yet."
    newest = "; ".join(f"{commit.message} ({commit.author})" for commit in seen.commits[:5])
    return f"{out} New commits: {len(seen.commits) + seen.more}{f', the newest: {newest}' if newest else ''}."


class ListChanges(Read[Changes]):
    """List the latest deployments of a repository and the commits pushed since. Use when <changes> does not hold what
    you need, for example another repository."""

    repository: str = Field(examples=["octo-org/shop"])

    def run(self, ctx: Ctx) -> Changes:
        """The last five deployments, and at most thirty commits."""
        tenant = ctx.task.tenant
        deployed = select(DeploymentRow).where(
            DeploymentRow.tenant == tenant, DeploymentRow.repository == self.repository
        )
        pushed = select(CommitRow).where(CommitRow.tenant == tenant, CommitRow.repository == self.repository)
        with ctx.db() as db:
            earlier = db.scalars(deployed.order_by(DeploymentRow.id.desc()).limit(MOST_EARLIER)).all()
            if earlier:
                pushed = pushed.where(CommitRow.pushed_at > earlier[0].recorded_at)
            commits = db.scalars(pushed.order_by(CommitRow.id.desc())).all()
            return Changes(
                repository=self.repository,
                deployments=[Deployment.model_validate(row, from_attributes=True) for row in earlier],
                commits=[Commit.model_validate(row, from_attributes=True) for row in commits[:MOST_COMMITS]],
                more=max(0, len(commits) - MOST_COMMITS),
            )


class KeepCommits(Write[int]):
    """Keep the commits of a push, so that the next release can tell what it brings. Use once for a push."""

    repository: str = Field(examples=["octo-org/shop"])
    commits: list[Commit]

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Only where a push has arrived."""
        return isinstance(task.event, Pushed)

    def write(self, db: Session) -> int:
        """How many were new: a commit may arrive by several pushes."""
        rows = [{"tenant": db.info["tenant"], "repository": self.repository} | c.model_dump() for c in self.commits]
        new = insert(CommitRow).values(rows).on_conflict_do_nothing().returning(CommitRow.id)
        return len(db.scalars(new).all())


class Deploy(Effect[Deployment], timeout=30, doubt="same_key"):
    """Take a release into production. Use once, after looking at what it brings; a person is asked before it begins."""

    repository: str = Field(examples=["octo-org/shop"])
    tag: str = Field(max_length=200, examples=["v1.4.2"])
    summary: str = Field(max_length=500, examples=["Second release; it brings 12 commits by two people."])

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Only where a release has arrived."""
        return isinstance(task.event, Released)

    def about(self) -> str:
        """The repository and the tag are the business entity."""
        return f"{self.repository}@{self.tag}"

    def approval(self, task: Task) -> Verdict:
        """A person decides; and nothing but the release of this task, once, is put before one."""
        event, known = task.event, task.prefetched(changes)
        if (self.repository, self.tag) != (event.repository, event.tag):
            return deny(f"This task is about {event.repository} {event.tag} and deploys nothing else.")
        earlier = [(known["repository"], row["tag"]) for row in known["deployments"]] if known else []
        if task.did(Deploy) or (self.repository, self.tag) in earlier:
            return deny(f"{self.repository} {self.tag} is deployed already: call nothing_to_do.")
        return ask(RELEASES, brings(known), risk="medium")

    def run(self, ctx: Ctx) -> Deployment:
        """Ask the pipeline. It honours the key: the same key is the same run."""
        body = {"repository": self.repository, "tag": self.tag, "environment": ENVIRONMENT}
        answer = ctx.http.post(PIPELINE, json=body, headers={"Idempotency-Key": ctx.key})
        if answer.status_code == 422:
            raise ToolError(f"The pipeline refuses {self.tag}: {answer.json()['error']}", affected=("tag",))
        answer.raise_for_status()
        return Deployment(**body, run=answer.json()["run"], summary=self.summary)

    def record(self, result: Deployment, db: Session) -> None:
        """The row, in the commit of the step."""
        db.add(DeploymentRow(tenant=db.info["tenant"], **result.model_dump()))
