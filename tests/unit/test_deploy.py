"""The agent `deploy`, played: what reaches it, what it may do, and what a person has to say first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.deploy.agent import agent
from agents.deploy.script import script
from agents.deploy.tools import (
    Changes,
    Commit,
    Deploy,
    Deployment,
    KeepCommits,
    ListChanges,
    Pushed,
    Released,
    Report,
    from_push,
    from_release,
)
from tests.architecture.tree import ROOT
from twelvefold import Done, Ignore, Message, NothingToDo
from twelvefold.effects import AskModel, RunEffect
from twelvefold.events import ApprovalAsked, PolicyDenied, Prefetched
from twelvefold.testing import Played, approves, doubt, gives, later, play, rejects

RELEASE = Released(repository="octo-org/shop", tag="v2", author="ann")
PUSH = Pushed(repository="octo-org/shop", branch="main", commits=[Commit(sha="a" * 40, author="ann", message="Fix")])
V1 = Deployment(repository="octo-org/shop", tag="v1", environment="production", run="run-1")
V2 = Deployment(repository="octo-org/shop", tag="v2", environment="production", run="run-2", summary="x")
DEPLOY = Deploy(repository="octo-org/shop", tag="v2", summary="x")
REPORT = Done(outcome=Report(repository="octo-org/shop", tag="v2", run="run-2", summary="x"))


def seen(*deployments: Deployment, commits: list[Commit] | None = None) -> Prefetched:
    """What was looked up."""
    changes = Changes(repository="octo-org/shop", deployments=list(deployments), commits=commits or [])
    return Prefetched(found={"changes": changes.model_dump(mode="json")})


def payload(name: str) -> Any:
    """One of GitHub's own examples."""
    return json.loads((ROOT / "tests" / "data" / "github" / f"{name}.json").read_bytes())


def denied(task: Played) -> list[str]:
    """Why calls were denied."""
    return [r.event.why for r in task.log if isinstance(r.event, PolicyDenied)]


def test_nothing_is_deployed_before_a_person_has_said_so() -> None:
    task = play(agent, RELEASE, seen(V1), DEPLOY)
    assert task.waiting == DEPLOY and task.state.waiting_for == "approval"
    task = play(agent, RELEASE, seen(V1), DEPLOY, approves())
    assert isinstance(task.wants, RunEffect)


def test_a_release_is_deployed_reported_and_done() -> None:
    task = play(agent, RELEASE, seen(V1), DEPLOY, approves(), gives(DEPLOY, V2), REPORT)
    assert task.status == "done" and task.outcome == REPORT.outcome
    assert task.state.about == "octo-org/shop@v2"


def test_a_no_is_no_and_done_is_refused() -> None:
    task = play(agent, RELEASE, seen(V1), DEPLOY, rejects(), REPORT)
    assert task.status == "ready" and task.state.reason == ""
    assert play(agent, RELEASE, seen(V1), DEPLOY, rejects(), NothingToDo(reason="no")).status == "done"


@pytest.mark.parametrize("change", [{"tag": "v3"}, {"repository": "octo-org/other"}])
def test_a_tag_or_a_repository_that_was_made_up_is_denied_before_anybody_is_asked(change: Any) -> None:
    task = play(agent, RELEASE, seen(V1), DEPLOY.model_copy(update=change))
    assert "deploys nothing else" in denied(task)[0] and task.waiting is None


def test_what_is_deployed_already_is_not_put_before_anybody_again() -> None:
    assert "already" in denied(play(agent, RELEASE, seen(V2, V1), DEPLOY))[0]
    twice = play(agent, RELEASE, seen(V1), DEPLOY, approves(), gives(DEPLOY, V2), DEPLOY)
    assert "already" in denied(twice)[0]


def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    before = play(agent, RELEASE, seen(V1), DEPLOY, approves())
    after = play(agent, RELEASE, seen(V1), DEPLOY, approves(), doubt(DEPLOY), later(seconds=1))
    assert isinstance(before.wants, RunEffect) and isinstance(after.wants, RunEffect)
    assert (after.wants.attempt, after.wants.key) == (2, before.wants.key)


def test_a_push_is_kept_by_code_without_a_model() -> None:
    keep = KeepCommits(repository=PUSH.repository, commits=PUSH.commits)
    task = play(agent, PUSH, seen(V1), gives(keep, 1))
    assert task.status == "done" and task.state.used.tokens == 0
    assert not any(type(r.event).__name__ == "ModelAsked" for r in task.log)


def test_a_person_reads_what_is_out_and_what_would_come() -> None:
    task = play(agent, RELEASE, seen(V1, commits=PUSH.commits), DEPLOY)
    asked = next(r.event for r in task.log if isinstance(r.event, ApprovalAsked))
    assert asked.reason == "Out now: v1. New commits: 1, the newest: Fix (ann)."
    assert (asked.target, asked.risk) == ("releases@example.org", "medium")
    blind = play(agent, RELEASE, Prefetched(failed={"changes": "OperationalError"}), DEPLOY)
    assert [r.event.reason for r in blind.log if isinstance(r.event, ApprovalAsked)] == [
        "What is out now could not be looked up."
    ]


def test_a_release_offers_the_model_nothing_to_keep() -> None:
    task = play(agent, RELEASE, seen(V1))
    assert Deploy.offered(task) and not KeepCommits.offered(task)


@pytest.mark.parametrize("event", [PUSH, Message(text="deploy v9, now")])
def test_only_a_release_lets_anything_be_deployed(event: Any) -> None:
    task = play(agent, event, seen())
    assert not Deploy.offered(task) and KeepCommits.offered(task) is isinstance(event, Pushed)


def test_a_question_is_answered_without_a_deployment() -> None:
    answer = Done(outcome=Report(repository="octo-org/shop", summary="v1 is out."))
    look = gives(
        ListChanges(repository="octo-org/shop"), Changes(repository="octo-org/shop", deployments=[V1], commits=[])
    )
    task = play(agent, Message(text="what is out?"), Prefetched(found={"changes": None}), look, answer)
    assert task.status == "done"


@pytest.mark.parametrize(
    ("found", "decides"),
    [
        (Prefetched(failed={"changes": "OperationalError"}), ListChanges),
        (seen(V2), NothingToDo),
        (seen(V1, commits=PUSH.commits), Deploy),
    ],
)
def test_the_script_decides_by_what_was_looked_up(found: Prefetched, decides: type[Any]) -> None:
    task = play(agent, RELEASE, found)
    assert isinstance(task.wants, AskModel)
    assert isinstance(script(task), decides)


def test_the_script_tells_what_a_release_brings() -> None:
    decided = script(play(agent, RELEASE, seen(V1, commits=PUSH.commits)))
    assert decided == DEPLOY.model_copy(update={"summary": "v2 by ann, with 1 commit by ann. It follows v1."})
    first = script(play(agent, RELEASE, seen()))
    assert isinstance(first, Deploy) and "no commit that was seen. Nothing was deployed before." in first.summary


def test_the_script_takes_no_for_an_answer_and_reports_a_yes() -> None:
    assert isinstance(script(play(agent, RELEASE, seen(V1), DEPLOY, rejects())), NothingToDo)
    assert script(play(agent, RELEASE, seen(V1), DEPLOY, approves(), gives(DEPLOY, V2))) == REPORT
    assert isinstance(script(play(agent, Message(text="hi"), seen())), NothingToDo)


def test_github_s_own_examples_are_read() -> None:
    released = from_release(payload("release-published"))
    assert isinstance(released, Released)
    assert (released.repository, released.tag, released.author) == ("Codertocat/Hello-World", "0.0.1", "Codertocat")
    pushed = from_push(payload("push-branch"))
    assert isinstance(pushed, Pushed) and pushed.branch == "master"
    assert [(c.sha[:8], c.author, c.message) for c in pushed.commits] == [("6113728f", "Codertocat", "Initial commit")]


@pytest.mark.parametrize(
    ("read", "name", "change", "reason"),
    [
        (from_push, "push", {}, "other_ref"),
        (from_push, "push-branch", {"ref": "refs/heads/topic"}, "other_ref"),
        (from_push, "push-branch", {"deleted": True}, "no_commits"),
        (from_push, "push-branch", {"commits": []}, "no_commits"),
    ],
)
def test_a_push_that_brings_nothing_to_the_default_branch_is_ignored_with_a_reason(
    read: Any, name: str, change: Any, reason: str
) -> None:
    assert read(payload(name) | change) == Ignore(reason)


@pytest.mark.parametrize("what", ["draft", "prerelease"])
def test_a_release_that_is_not_for_everybody_yet_is_ignored(what: str) -> None:
    found = payload("release-published")
    found["release"][what] = True
    assert from_release(found) == Ignore(what)


def test_a_push_of_very_many_commits_keeps_the_newest() -> None:
    found = payload("push-branch")
    many = [found["commits"][0] | {"id": f"{n:040x}", "message": f"m{n}\nmore"} for n in range(100)]
    pushed = from_push(found | {"commits": many})
    assert isinstance(pushed, Pushed)
    assert [c.message for c in pushed.commits] == [f"m{n}" for n in range(70, 100)]
