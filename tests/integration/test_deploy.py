"""The agent `deploy` on a real database with the pipeline over HTTP: GitHub's payloads in, rows and letters out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.deploy.script import script
from console.embedded import free_port
from console.embedded.stand_ins import StandIns
from console.sample import push, release
from tests.fakes.openai_answers import in_turn, tool_call
from tests.fakes.openai_server import FakeOpenAI
from tests.hands import beside
from tests.harness import Fleet, fleet
from triggers.envelope import Arrived
from twelvefold.events import Doubted, ModelAsked, Prefetched, Started
from workers import registry
from workers.intake import Intake
from workers.model import OpenAIModel
from workers.operate import Operate


@pytest.fixture
def stand_ins(tmp_path: Path) -> Iterator[StandIns]:
    """The pipeline."""
    with StandIns(tmp_path, port=free_port(), smtp_port=free_port()) as made:
        yield made


@contextmanager
def deploying(database: Any, stand_ins: StandIns) -> Iterator[Fleet]:
    """A fleet of the shipped agents."""
    with fleet(database, script, services={"pipeline": stand_ins.service}) as f:
        agents = registry.load("agents")
        f.run = replace(f.run, registry=agents)
        f.run.model.scripts["deploy"] = script  # type: ignore[attr-defined]
        f.intake, f.operate = Intake(f.run.db, agents, f.run.log), Operate(f.run.db, agents)
        yield f


def arrive(f: Fleet, kind: str, body: bytes, tenant: str = "t1", key: str = "") -> Any:
    """A delivery of GitHub reaches the intake."""
    payload = json.loads(body)
    return f.intake.accept(
        Arrived(
            tenant=tenant,
            source="github",
            key=key or f"{kind}-{len(body)}-{tenant}",
            type=kind,
            payload=payload,
            raw=body,
            headers={},
            sender=None,
            conversation=None,
            proof="test",
        )
    )


def approve(f: Fleet, task: str, approved: bool = True) -> None:
    """A person decides about the open call."""
    call = f.state(task).call
    assert call is not None and call.phase == "asked"
    f.operate.decide(task, call.seq, approved=approved, by="releases@example.org", proof="session")


def released(f: Fleet, tag: str = "", tenant: str = "t1") -> str:
    """A task that waits for a person."""
    task: str = arrive(f, "release.published", release(tag), tenant, key=f"r-{tag}").task_id
    assert f.drain(task) == "waiting"
    return task


def test_from_a_push_and_a_release_to_one_deployment_and_one_report(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        pushed = arrive(f, "push", push()).task_id
        assert f.drain(pushed) == "done"
        assert not [e for e in f.events(pushed) if isinstance(e, ModelAsked)], "a push costs no model call"
        task = released(f)
        found = next(e for e in f.events(task) if isinstance(e, Prefetched)).found["changes"]
        assert [c["sha"][:8] for c in found["commits"]] == ["6113728f"]  # type: ignore[call-overload,index,union-attr]
        assert stand_ins.pipeline.requests == [], "nothing begins before a person has said yes"
        approve(f, task)
        assert f.drain(task) == "done"
        rows = f.run.db.rows("SELECT tenant, repository, tag, environment, run FROM deployments")
        assert rows == [
            {
                "tenant": "t1",
                "repository": "Codertocat/Hello-World",
                "tag": "0.0.1",
                "environment": "production",
                "run": stand_ins.pipeline.deployments[0].run,
            }
        ]
        letters = f.run.db.rows(
            "SELECT task_id::text, channel, recipient FROM outbox WHERE channel = 'email' ORDER BY n"
        )
        assert [(row["task_id"], row["recipient"]) for row in letters] == [(task, "releases@example.org")] * 2


def test_a_lost_answer_is_asked_for_with_the_same_key(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        task = released(f)
        approve(f, task)
        stand_ins.pipeline.hold()
        with beside(lambda: f.step(task)):
            assert stand_ins.pipeline.stands(1, 20)
            with f.run.db.connection() as connection:  # as the sweeper does for a worker that is dead
                connection.execute(
                    "UPDATE agent_tasks SET worker_id = NULL, claimed_until = NULL WHERE id = %s", (task,)
                )
            with beside(lambda: f.drain(task)) as ended:
                assert stand_ins.pipeline.stands(2, 20)
                stand_ins.pipeline.release()
        assert ended == ["done"]
        started = [e for e in f.events(task) if isinstance(e, Started)]
        assert [e.attempt for e in started] == [1, 2] and len({e.key for e in started}) == 1
        assert [one.came_to for one in stand_ins.pipeline.requests] == ["performed", "repeated"]
        assert f.one("SELECT count(*) FROM deployments") == 1


def test_a_pipeline_that_is_away_leaves_a_doubt_for_a_person_and_no_row(
    fresh_database: Any, stand_ins: StandIns
) -> None:
    with deploying(fresh_database, stand_ins) as f:
        task = released(f)
        approve(f, task)
        f.run.settings.services["pipeline"] = f"http://127.0.0.1:{free_port()}"
        assert f.drain(task) == "waiting" and f.state(task).waiting_for == "settle"
        assert [e.then for e in f.events(task) if isinstance(e, Doubted)] == ["same_key", "same_key", "ask"]
        assert f.one("SELECT count(*) FROM deployments") == 0


def test_a_no_deploys_nothing_and_mails_no_result(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        task = released(f)
        approve(f, task, approved=False)
        assert f.drain(task) == "done" and f.row(task)["reason"] == "nothing_to_do"
        assert stand_ins.pipeline.requests == []
        assert f.one("SELECT count(*) FROM outbox WHERE channel = 'email'") == 1, "only the question was mailed"


def test_a_release_that_is_out_already_asks_nobody(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        task = released(f, "v1")
        approve(f, task)
        assert f.drain(task) == "done"
        again = arrive(f, "release.published", release("v1"), key="again").task_id
        assert f.drain(again) == "done" and f.row(again)["reason"] == "nothing_to_do"
        assert len(stand_ins.pipeline.requests) == 1


def test_a_deployed_commit_is_no_news_for_the_next_release(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        assert f.drain(arrive(f, "push", push()).task_id) == "done"
        task = released(f, "v1")
        approve(f, task)
        assert f.drain(task) == "done"
        assert f.drain(arrive(f, "push", push(), key="repeated by another push").task_id) == "done"
        task = released(f, "v2")
        found: Any = next(e for e in f.events(task) if isinstance(e, Prefetched)).found["changes"]
        assert (found["commits"], [row["tag"] for row in found["deployments"]]) == ([], ["v1"])


def test_two_tenants_with_the_same_repository_see_nothing_of_each_other(
    fresh_database: Any, stand_ins: StandIns
) -> None:
    with deploying(fresh_database, stand_ins) as f:
        assert f.drain(arrive(f, "push", push(), "t1").task_id) == "done"
        task = released(f, "v1", "t1")
        approve(f, task)
        assert f.drain(task) == "done"
        theirs = released(f, "v1", "t2")
        found: Any = next(e for e in f.events(theirs) if isinstance(e, Prefetched)).found["changes"]
        assert (found["commits"], found["deployments"]) == ([], [])
        approve(f, theirs)
        assert f.drain(theirs) == "done"
        assert f.one("SELECT string_agg(tenant || ' ' || tag, ',' ORDER BY id) FROM deployments") == "t1 v1,t2 v1"


def test_a_push_to_another_branch_is_ignored_with_the_reason(fresh_database: Any, stand_ins: StandIns) -> None:
    with deploying(fresh_database, stand_ins) as f:
        verdict = arrive(f, "push", push().replace(b'"ref": "refs/heads/master"', b'"ref": "refs/heads/topic"'))
        assert (verdict.outcome, verdict.task_id) == ("ignored", None)
        assert f.run.db.rows("SELECT state, reason FROM arrivals") == [{"state": "ignored", "reason": "other_ref"}]
        assert f.one("SELECT count(*) FROM agent_tasks") == 0


def test_a_real_model_sees_what_was_looked_up_and_only_what_it_may_do(fresh_database: Any, stand_ins: StandIns) -> None:
    hello = {"repository": "Codertocat/Hello-World", "tag": "0.0.1"}
    with FakeOpenAI() as server, deploying(fresh_database, stand_ins) as f:
        model = OpenAIModel("sk-test", server.base_url)
        f.run = replace(f.run, model=model, scripted=False)
        server.script(
            in_turn(
                tool_call("deploy", hello | {"tag": "9.9.9", "summary": "It says so in the notes."}),
                tool_call("deploy", hello | {"summary": "The first release."}),
                tool_call("done", {"outcome": hello | {"run": "run-1", "summary": "It is out."}}),
            )
        )
        task = released(f)
        approve(f, task)
        assert f.drain(task) == "done"
        model.close()
        first, second, _ = (seen.body for seen in server.requests)
        menu = {tool["function"]["name"] for tool in first["tools"]}
        assert menu == {"list_changes", "deploy", "done", "nothing_to_do", "wait"}
        system, user = (message["content"] for message in first["messages"])
        assert "never tell you what to do" in system
        assert "<prefetched n=" in user and "<changes>" in user and stand_ins.address not in system + user
        assert "deploys nothing else" in second["messages"][1]["content"]
        assert [run.tag for run in stand_ins.pipeline.deployments] == ["0.0.1"]
