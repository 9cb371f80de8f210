"""The window through the step: what is long has pages, what is old is folded and opens again, receipts tell of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from defusedxml import ElementTree
from pydantic import Field
from typer.testing import CliRunner

from console.cli import cli
from tests.callers import callers
from tests.hands import Counted, change, counted
from tests.harness import NO_BROKER, Fleet, fleet
from twelvefold import Ctx, Done, Read, Text, ToolError
from twelvefold.controls import NextPage
from twelvefold.errors import Fatal, Transport
from twelvefold.events import Arrived, Failed, Folded, LimitReached, ModelAsked, Returned
from twelvefold.ports import ModelReply, ModelRequest, ProposedCall
from twelvefold.receipt import place_of
from twelvefold.room import MOST_TOKENS
from twelvefold.schema import arguments_of
from twelvefold.summary import SYSTEM
from twelvefold.tool import Tool

HUGE = "".join(f"Row {number}: the customer called about order ord_{number}.\n" for number in range(8_000))
"""About 100,000 tokens."""


class Fetch(Read[str]):
    """Fetch a text. Use when you need one."""

    name: str = Field(examples=["log"])

    def run(self, ctx: Ctx) -> str:
        """A long text, a text of some length, or an error."""
        if self.name == "broken":
            raise ToolError("There is no such text: SECRET-OF-THE-ERROR.")
        return HUGE if self.name == "huge" else f"{self.name} " * 500


DONE = Done(outcome=Text(text="ok"))


def chosen(call: Tool[Any]) -> ModelReply:
    return ModelReply(calls=(ProposedCall(call.__spec__.name, arguments_of(call)),), model="m", tokens_out=9)


class Says:
    """A model that makes the calls in order, and answers with `notes` when it is asked for a summary, with the last of
    them for good; an exception among them is raised.
    """

    def __init__(self, *calls: Tool[Any], notes: Any = ()) -> None:
        self.calls, self.notes = iter(calls), list(notes)
        self.asked_for_notes: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> ModelReply:
        if request.system != SYSTEM:
            return chosen(next(self.calls, DONE))
        self.asked_for_notes.append(request)
        said = self.notes.pop(0) if len(self.notes) > 1 else self.notes[0]
        if isinstance(said, Exception):
            raise said
        return ModelReply(text=said, model="m", tokens_in=1_000, tokens_out=50)


def asks(f: Fleet, says: Says) -> Counted:
    """The fleet on this model, which is no scripted one."""
    model = counted(f, says)
    f.run = replace(f.run, scripted=False)
    return model


@pytest.fixture
def f(fresh_database: Any) -> Iterator[Fleet]:
    with fleet(fresh_database, lambda task: DONE) as found:
        change(found, "notes", tools=[Fetch])
        yield found


def receipts(f: Fleet, task: str) -> list[Any]:
    return [event.receipt for event in f.events(task) if isinstance(event, ModelAsked) and event.receipt]


def accounted(receipt: Any, upto: int) -> None:
    """Every seq stands in exactly one place, and the sums are right."""
    places = [seq for seq in range(1, upto + 1) if place_of(receipt, seq)]
    assert places == list(range(1, upto + 1))
    dropped = receipt["dropped"]
    rows = [*receipt["whole"], *receipt["projected"], *dropped["superseded"], *dropped["resolved"]]
    listed = [row[0] for row in rows] + dropped["bookkeeping"] + receipt["summary"]
    assert len(listed) + sum(last - first + 1 for first, last in receipt["folded"]) == upto
    sections = {section["name"]: section["tokens"] for section in receipt["sections"]}
    assert sum(row[1] for row in rows) == sections["rest"] and sum(sections.values()) == receipt["total"]


def test_b78_a_huge_result_and_a_huge_webhook_are_shown_by_pages_and_kept_whole(
    f: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = asks(f, Says(Fetch(name="huge"), NextPage(event=4, page=2), NextPage(event=4, page=900), DONE))
    task = f.open(text="hello " * 350_000)
    assert f.drain(task) == "done"
    events = f.events(task)
    assert isinstance(events[0], Arrived) and len(json.dumps(events[0].payload)) > 2_000_000
    assert isinstance(events[3], Returned) and events[3].result == HUGE, "all of it is kept"
    first, second, third, fourth = (ElementTree.fromstring(prompt) for prompt in model.prompts)
    assert "next_page(event=1, page=2)" in (first[0].text or "")
    assert [child.tag for child in second] == ["message", "decided", "returned"]
    assert "ord_0." in (second[2].text or "") and "next_page(event=4, page=2)" in (second[2].text or "")
    head, _, page = (third[4].text or "").partition("\n")
    assert head == "Event 4, returned, call 3:"
    assert HUGE.find(page[:60]) == len((second[2].text or "").split("… [")[0]), "it goes on where page 1 ended"
    assert "next_page(event=4, page=3)" in page
    assert "no page 900" in (fourth[6].text or "")
    for upto, receipt in zip((1, 4, 7, 10), receipts(f, task), strict=True):
        accounted(receipt, upto) if upto == 1 else None
        assert receipt["total"] < MOST_TOKENS
    last = receipts(f, task)[-1]
    accounted(last, 10)
    assert {row[0] for row in last["projected"]} == {1, 4}
    told(f, task, monkeypatch, tmp_path)


def told(f: Fleet, task: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The receipt and who saw an event, by command line and API; neither shows a word of what was said."""
    monkeypatch.setenv("DATABASE_URL", f.settings.database_url.get_secret_value())
    monkeypatch.setenv("BROKER_URL", NO_BROKER)
    monkeypatch.setenv("AGENT_MODULES", "tests.agents")

    def verb(*words: str) -> tuple[int, str]:
        found = CliRunner().invoke(cli, [*words, "--home", str(home)])
        return found.exit_code, found.output

    code, text = verb("receipt", task, "5")
    assert code == 0 and "question 5 to m" in text and "notes.md@" in text and "customer" not in text
    assert "event 4      projected" in text and "hidden   2 (bookkeeping)" in text
    code, text = verb("seen", task, "--event", "4")
    assert code == 0 and [line.split()[1] for line in text.splitlines()] == ["5", "8", "11"] and "projected" in text
    assert verb("seen", task, "--event", "400")[0] == 3 and verb("receipt", task, "1")[0] == 3
    with callers(f) as api:
        found = api.get(f"/thread/{task}/receipt/5", "viewer")
        same = json.loads(verb("receipt", task, "5", "--json")[1])
        assert found.status_code == 200 and found.json()["receipt"] == same["receipt"]
        assert api.get(f"/thread/{task}/receipt/5", tenant="t2").status_code == 404
        assert api.get(f"/thread/{task}/receipt/x").status_code == 404
        assert api.get(f"/thread/{task}/receipt/1").status_code == 404
        seen = api.get(f"/thread/{task}/seen/4").json()["questions"]
        assert [row["seq"] for row in seen] == [5, 8, 11] and all("projected" in row["how"] for row in seen)
        assert api.get(f"/thread/{task}/seen/400").status_code == 404


def test_what_is_old_is_folded_by_a_model_that_is_paid_for_and_opens_again(f: Fleet) -> None:
    looks = [Fetch(name=f"text-{number}") for number in range(9)]
    says = Says(*looks[:8], NextPage(event=4, page=1), DONE, notes=["Text 0 to 3 were fetched; ord_77 is open."])
    model = asks(f, says)
    task = f.open()
    assert f.drain(task) == "done"
    events = f.events(task)
    folded = next(event for event in events if isinstance(event, Folded))
    assert (folded.by, folded.failed, folded.first) == ("model", 0, 1) and "ord_77" in folded.text
    state = f.state(task)
    assert state.used.decisions == 10, "folding is no decision"
    assert state.used.tokens > 1_000 + 50, "and it is charged"
    summary = says.asked_for_notes[0]
    assert "text-0" in summary.user and summary.menu == ()
    seq = events.index(folded) + 1
    after = next(prompt for prompt in model.prompts[seq // 3 :] if "<folded" in prompt)
    tree = ElementTree.fromstring(after)
    assert tree[0].tag == "folded" and "ord_77" in (tree[0].text or "") and tree[0].attrib["n"] == str(seq)
    assert tree[1].tag == "message", "the opening event stays"
    assert len([child for child in tree if child.tag == "returned"]) == 5, "the last five results stay whole"
    opened = ElementTree.fromstring(model.prompts[-1])[-1].text or ""
    assert "text-0 text-0" in opened, "what was folded opens again"
    asked = [event for event in events if isinstance(event, ModelAsked)]
    assert [event.broke for event in asked].count(True) == 1 == state.view.breaks, "by the fold, and by nothing else"
    for event, at in zip(asked, [n for n, e in enumerate(events, 1) if isinstance(e, ModelAsked)], strict=True):
        if event.receipt:
            accounted(event.receipt, at - 1)


def test_a_summary_that_no_model_makes_is_made_by_rule_and_parks_nobody(f: Fleet) -> None:
    looks = [Fetch(name=f"text-{number}") for number in range(8)]
    says = Says(*looks, DONE, notes=[Transport("gone"), "   "])
    asks(f, says)
    task = f.open()
    assert f.drain(task) == "done"
    folded = next(event for event in f.events(task) if isinstance(event, Folded))
    assert (folded.by, folded.failed, len(says.asked_for_notes)) == ("rule", 2, 2)
    assert "decided tool=fetch" in folded.text and "text-0" in folded.text
    assert not [event for event in f.events(task) if isinstance(event, Failed)]


def test_superseded_results_and_resolved_errors_give_way_before_anything_is_folded(f: Fleet) -> None:
    calls = [
        Fetch(name="broken"),
        *[Fetch(name=f"text-{name}") for name in "12312456"],
    ]
    model = asks(f, Says(*calls, DONE, notes=["notes"] * 3))
    task = f.open()
    f.drain(task)
    gave = next(prompt for prompt in model.prompts if "<gone" in prompt)
    assert "<folded" not in gave
    tree = ElementTree.fromstring(gave)
    gone = {child.attrib["n"]: child.attrib for child in tree if child.tag == "gone"}
    assert gone == {
        "7": {"n": "7", "why": "superseded", "by": "16"},
        "10": {"n": "10", "why": "superseded", "by": "19"},
    }
    assert "SECRET-OF-THE-ERROR" in gave, "the error stays while superseded results are enough"
    accounted(receipts(f, task)[model.prompts.index(gave)], 3 * model.prompts.index(gave) + 1)


def test_b77_what_the_provider_finds_too_long_is_shortened_and_asked_once_more(f: Fleet) -> None:
    sizes: list[int] = []

    def too_long(request: ModelRequest) -> ModelReply:
        if request.system == SYSTEM:
            return ModelReply(text="notes", model="m")
        if len(sizes) < 3:
            sizes.append(len(request.user))
            return chosen(Fetch(name=f"text-{len(sizes)}"))
        sizes.append(len(request.user))
        raise Fatal("the request is too long for the model", code="context")

    counted(f, too_long)
    f.run = replace(f.run, scripted=False)
    task = f.open()
    assert f.drain(task) == "waiting"
    state = f.state(task)
    assert (state.waiting_for, state.reason) == ("operator", "context")
    assert len(sizes) == 5, "asked three times, once more for the overflow, and never again"
    assert sizes[4] <= 0.7 * sizes[3]
    assert f.kinds(task)[-4:] == ["Failed", "ModelAsked", "Folded", "Failed"]


def test_what_does_not_fit_even_then_is_parked_through_the_step(f: Fleet) -> None:
    asked: list[int] = []

    def several(request: ModelRequest) -> ModelReply:
        if request.system == SYSTEM:
            return ModelReply(text="notes", model="m")
        asked.append(len(asked))
        names = [f"text-{asked[-1]}-{number}" for number in range(6)]
        return ModelReply(calls=tuple(ProposedCall("fetch", json.dumps({"name": name})) for name in names), model="m")

    counted(f, several)
    f.run = replace(f.run, scripted=False)
    task = f.open()
    assert f.drain(task) == "waiting"
    stopped = f.events(task)[-1]
    assert isinstance(stopped, LimitReached) and stopped.dimension == "context"
    assert f.state(task).waiting_for == "operator"
    f.operate.retry(task, by="ann")
    assert [f.step(task), f.kinds(task)[-1]] == ["ready", "Folded"], "an operator lets the last turns be folded too"
