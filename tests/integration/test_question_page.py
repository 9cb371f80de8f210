"""The mail of a question and the page it links to: opening answers nothing, one answer stands, and text stays text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.applications import Starlette

from console import answer, approve
from tests.agents.curious.tools import Sign
from tests.asked import LINK, Mailbox, at_once, fields, send, tags
from tests.curious import ANN, BEN, WHICH, WHY, ask_by, curious
from tests.hands import once
from tests.harness import Fleet
from twelvefold import AskHuman
from workers.links import from_settings

EVIL = "Open https://evil.example/a/x\nTO DECIDE\n<script>alert(1)</script> or mail eve@evil.example"


def app(f: Fleet) -> Starlette:
    """Both pages."""
    links = from_settings(f.settings)
    pages = [module.routes(f.run.db, links, lambda *_: None, f.run.log) for module in (approve, answer)]
    return Starlette(routes=[*pages[0], *pages[1]])


def text(box: Mailbox, to: str = ANN) -> str:
    """The last letter to somebody."""
    return [letter.text for letter in box.letters if letter.recipient == to][-1]


def path(box: Mailbox, to: str = ANN) -> str:
    """The path of the link in it."""
    return f"/a/{LINK.findall(text(box, to))[-1]}"


def say(f: Fleet, where: str, said: str | None, **more: str) -> Any:
    """Answer on the page, or open it."""
    form = None if said is None else {"answer": said, **more}
    return at_once(app(f), [("GET" if form is None else "POST", where, form)])[0]


def stands(f: Fleet, task: str) -> tuple[str, str | None]:
    """State and answer of the question."""
    found = f.run.db.rows("SELECT state, answer FROM approvals WHERE task_id = %(id)s", {"id": task})[0]
    return found["state"], found["answer"]


def test_the_mail_asks_names_the_ways_and_has_one_link_of_its_own_for_each(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHICH.model_copy(update={"urgency": "high"})) as f:
        ask_by(f, box)
        assert path(box) != path(box, BEN) and path(box).startswith("/a/q/v1.")
        assert len(re.findall("https?://", text(box))) == 1
        for words in (
            "Refund or replace?",
            "one of these: Refund, Replace",
            f"{ANN}, {BEN}",
            "permits nothing",
            "--call 3",
        ):
            assert words in text(box), words
        assert box.letters[0].subject.startswith("Urgent: curious asks: Refund or replace?")
        stored = f.one("SELECT string_agg(payload::text, '') FROM outbox")
        assert "/a/q/" not in stored and "v1." not in stored


def test_opening_the_page_answers_nothing_and_nothing_is_chosen_beforehand(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHICH) as f:
        task = ask_by(f, box)
        page = say(f, path(box), None)
        inputs = [found for name, found in tags(page.text) if name == "input"]
        assert page.status_code == 200 and [i["value"] for i in inputs] == ["Refund", "Replace"]
        assert not any("checked" in i for i in inputs)
        assert say(f, path(box), "").status_code == 400, "a program that submits the form as it is"
        assert stands(f, task) == ("pending", None)


def test_one_answer_stands_and_every_copy_shows_it(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHICH) as f:
        task = ask_by(f, box)
        assert say(f, path(box), "perhaps").status_code == 400 and stands(f, task) == ("pending", None)
        assert say(f, path(box), "refund").status_code == 200 and stands(f, task) == ("answered", "Refund")
        assert say(f, path(box), "Refund").status_code == 200
        late = say(f, path(box, BEN), "Replace")
        assert late.status_code == 409 and f"answered by {ANN}" in late.text and not fields(late.text)
        assert f.drain(task) == "done" and "Refund" in say(f, path(box, BEN), None).text
        send(f, box)


def test_a_question_that_is_over_is_gone(fresh_database: Any) -> None:
    box = Mailbox()
    with curious(fresh_database, WHY) as f:
        task = ask_by(f, box)
        f.operate.cancel(task, by="root")
        f.drain(task)
        assert [say(f, path(box), said).status_code for said in (None, "late")] == [410, 410]
        assert stands(f, task) == ("superseded", None)


def test_a_link_shows_only_what_it_was_made_for(fresh_database: Any) -> None:
    box, other = Mailbox(), Mailbox()
    with curious(fresh_database, WHY) as f:
        task = ask_by(f, box)
        f.run.model.scripts["curious"] = once(Sign(item="pears"))  # type: ignore[attr-defined]
        signing = ask_by(f, other)
        question, approval = path(box), path(other)
        crossed = [question.replace("/a/q/", "/a/"), approval.replace("/a/", "/a/q/"), question[:-1], "/a/q/x"]
        for where in crossed:
            for said in (None, "yes"):
                found = say(f, where, said, decision="approve", digest="x", seen="1")
                assert found.status_code == 404 and task not in found.text and signing not in found.text
        assert stands(f, task) == stands(f, signing) == ("pending", None)


@pytest.mark.parametrize("place", ["reason", "context", "choice"])
def test_text_of_the_agent_is_text_and_nothing_of_it_can_be_clicked(fresh_database: Any, place: str) -> None:
    asked: Any = {
        "reason": {"reason": EVIL}, "context": {"context": [{"name": EVIL[:50], "value": EVIL}]},
        "choice": {"format": "choice", "choices": [EVIL.split("\n")[0], EVIL.split("\n")[2]]},
    }[place]  # fmt: skip
    box = Mailbox()
    with curious(fresh_database, AskHuman(**({"reason": "Which?", "target": "refund-ops"} | asked))) as f:
        ask_by(f, box)
        page = say(f, path(box), None)
        assert (
            "script" not in {name for name, _ in tags(page.text)} and "https://evil" not in page.text.split("<form")[0]
        )
        mail = text(box)
        assert mail.count("https://") == 1 and "eve@evil" not in mail and "\nTO DECIDE" not in mail
