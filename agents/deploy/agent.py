"""Deploy: a published release is looked at, recorded and reported by mail."""

from __future__ import annotations

from datetime import timedelta

from twelvefold import Agent, Budget, Task, on, to

from .tools import Deployment, ListDeployments, RecordDeployment, Released, from_github


def recorded(task: Task) -> str | None:
    """Done means that a deployment was recorded."""
    return None if task.did(RecordDeployment) else "Nothing is recorded yet: call record_deployment first."


agent = Agent(
    accepts=Released,
    returns=Deployment,
    about=lambda released: f"{released.repository}@{released.tag}",
    tools=[ListDeployments, RecordDeployment],
    success=[recorded],
    budget=Budget(decisions=8, tokens=40_000, active=timedelta(minutes=2)),
    triggers=[on.webhook("github", type="release.published", read=from_github)],
    delivery=[to.email("releases@example.org"), to.log("deployments")],
    subject=lambda deployment: f"Deployed {deployment.repository} {deployment.tag}",
)
