"""What the agent can do: look at earlier deployments, record a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from sqlalchemy import select

from twelvefold import Ctx, Read, ToolError, Write

from .tables import DeploymentRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Released(BaseModel):
    """A release that was published."""

    repository: str
    tag: str
    name: str = ""
    author: str = ""
    url: str = ""
    notes: str = ""


class Deployment(BaseModel):
    """One recorded deployment."""

    repository: str
    tag: str
    summary: str


def from_github(payload: dict[str, Any]) -> Released:
    """GitHub's `release` payload as what this agent accepts."""
    release = payload["release"]
    return Released(
        repository=payload["repository"]["full_name"],
        tag=release["tag_name"],
        name=release.get("name") or "",
        author=release["author"]["login"],
        url=release["html_url"],
        notes=release.get("body") or "",
    )


class ListDeployments(Read[list[Deployment]]):
    """List the latest deployments of a repository, newest first. Use before recording, to see what came before."""

    repository: str = Field(examples=["octo-org/shop"])

    def run(self, ctx: Ctx) -> list[Deployment]:
        """The last five."""
        newest = select(DeploymentRow).where(DeploymentRow.repository == self.repository)
        with ctx.db() as db:
            rows = db.scalars(newest.order_by(DeploymentRow.id.desc()).limit(5)).all()
            return [Deployment(repository=row.repository, tag=row.tag, summary=row.summary) for row in rows]


class RecordDeployment(Write[Deployment]):
    """Record that a release goes out. Use once for each release, after looking at the earlier deployments."""

    repository: str = Field(examples=["octo-org/shop"])
    tag: str = Field(max_length=200, examples=["v1.4.2"])
    summary: str = Field(max_length=500, examples=["First release; nothing was deployed before."])

    def about(self) -> str:
        """The repository and the tag are the business entity."""
        return f"{self.repository}@{self.tag}"

    def write(self, db: Session) -> Deployment:
        """The row, unless the release is recorded already."""
        known = select(DeploymentRow).where(DeploymentRow.repository == self.repository, DeploymentRow.tag == self.tag)
        if db.scalar(known) is not None:
            raise ToolError(
                f"{self.repository} {self.tag} is recorded already.",
                affected=("tag",),
                suggestion="There is nothing left to do: call nothing_to_do, or record another tag.",
            )
        db.add(DeploymentRow(repository=self.repository, tag=self.tag, summary=self.summary))
        db.flush()
        return Deployment(repository=self.repository, tag=self.tag, summary=self.summary)
