"""What gives way in the window, in which order, and what never does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from defusedxml import ElementTree

from tests.property.plays import PLAYER, Look, Play, player
from tests.property.test_window import accounted, window_of
from twelvefold import Agent, Ctx, DeclarationError, Read
from twelvefold.controls import NextPage
from twelvefold.decide import decided
from twelvefold.effects import AskModel, OpenPage, Summarise
from twelvefold.errors import ToolError
from twelvefold.events import Arrived, Event, Failed, Folded, LimitReached, ModelAsked, Rejected, Resumed, Returned
from twelvefold.pages import PAGE_TOKENS, page
from twelvefold.peek import peek
from twelvefold.policy import judged
from twelvefold.room import EASY_TOKENS, KEPT_RESULTS, KEPT_TURNS, MOST_TOKENS, SHOWN_TOKENS
from twelvefold.shape import Row
from twelvefold.summary import SUMMARY_TOKENS, mechanical
from twelvefold.testing import EPOCH, gives, later, play, raises
from twelvefold.tokens import tokens_of
from workers import registry

LONG = "the same words again " * 350
"""About 1,700 tokens."""


def rows(play_: Play) -> list[Row]:
    return [Row(r.seq, type(r.event).__name__, r.event.version, r.event.data) for r in play_.log]


def turn(play_: Play, *topics: str, result: str = LONG) -> None:
    """One reply with a Look for each topic, and what they came to."""
    assert isinstance(play_.wants, AskModel), play_.wants
    seq, happened = play_.state.seq + 1, list[Event]()
    for number, topic in enumerate(topics):
        seq += 1
        call = decided(Look(topic=topic), by="model", further=number > 0)
        happened += [judged(play_.agent, play_.task, call, seq), Returned(call=seq, result=[result])]
        seq += 1
    wants = play_.wants
    play_.feed(ModelAsked(model="m", request="r", boundary=wants.boundary, eased=wants.eased), *happened)


def folds(play_: Play, text: str = "notes") -> Folded:
    """Fold as the task wants."""
    assert isinstance(play_.wants, Summarise), play_.wants
    event = Folded(first=play_.state.boundary, last=play_.wants.last, text=text, hash="h")
    play_.feed(event)
    return event


def roomy(**change: Any) -> Play:
    return Play(player(budget=PLAYER.budget.model_copy(update={"decisions": 100, "tokens": 10**7}), **change))


def test_nothing_gives_way_while_there_is_room() -> None:
    play_ = roomy()
    for topic in ("a", "b", "c", "d"):
        turn(play_, topic)
    assert play_.wants == AskModel(1, (0, 0))
    assert "gone" not in window_of(play_).user and "folded" not in window_of(play_).user


def test_the_last_turns_and_results_stay_whole_and_the_rest_is_folded_at_once() -> None:
    play_ = roomy()
    while isinstance(play_.wants, AskModel):
        turn(play_, f"topic {play_.state.seq}")
    calls = [r.seq for r in play_.log if type(r.event).__name__ == "Decided"]
    event = folds(play_)
    assert event.last + 1 == calls[-KEPT_RESULTS], "five results, and so more than three turns"
    tree = ElementTree.fromstring(window_of(play_).user)
    assert [child.tag for child in tree] == ["folded", "message", *["decided", "returned"] * KEPT_RESULTS]
    assert len(play_.state.view.turns) == KEPT_TURNS
    accounted(play_, window_of(play_))
    turn(play_, "one more")
    assert isinstance(play_.wants, AskModel), "it does not fold again for one turn"


def test_an_older_result_of_the_same_look_gives_way_first_and_is_named() -> None:
    play_ = roomy()
    for topic in ("same", "a", "b", "same", "c"):
        turn(play_, topic)
    assert isinstance(play_.wants, AskModel) and play_.wants.eased == (0, 0), "there is room for all of them"
    turn(play_, "d")
    assert isinstance(play_.wants, AskModel) and play_.wants.eased == (play_.state.seq + 1, 0)
    window = window_of(play_)
    assert window.receipt["dropped"]["superseded"] == [[4, window.receipt["dropped"]["superseded"][0][1], 13]]
    assert '<gone n="4" why="superseded" by="13"></gone>' in window.user
    accounted(play_, window)


def test_resolved_errors_give_way_next_and_those_that_nothing_resolved_stay() -> None:
    error = ToolError("It is locked. " + "again and again " * 350)
    task = play(roomy().agent, {"text": "hello"}, raises(Look(topic="a"), error), gives(Look(topic="a"), ["found"]))
    assert task.state.view.spare == ((4, "resolved", 7),)
    unresolved = play(PLAYER, {"text": "hello"}, raises(Look(topic="a"), error))
    assert unresolved.state.view.spare == () and unresolved.state.view.errors == (("look", 4),)
    play_ = roomy()
    play_.feed(ModelAsked(model="m", request="r", boundary=1), Rejected(kind="prose", text=LONG))
    for topic in "abcdef":
        turn(play_, topic, result="the same words again " * 300)
    assert isinstance(play_.wants, AskModel) and play_.wants.eased == (play_.state.seq + 1,) * 2
    assert '<gone n="3" why="resolved" by="5"></gone>' in window_of(play_).user
    accounted(play_, window_of(play_))


def test_what_cannot_give_way_parks_the_task_and_an_operator_may_fold_more() -> None:
    play_ = roomy()
    for number in range(3):
        turn(play_, *[f"{number} {topic}" for topic in "abcde"])
    if isinstance(play_.wants, Summarise):
        folds(play_)  # what stood before the three turns does not help
    stopped = play_.log[-1].event
    assert isinstance(stopped, LimitReached) and stopped.dimension == "context" and int(stopped.used) > MOST_TOKENS
    assert (play_.state.status, play_.state.waiting_for, play_.state.reason) == ("waiting", "operator", "context")
    play_.absorb([Resumed(by="ann", verb="retry")])
    folds(play_)
    assert isinstance(play_.wants, AskModel)
    accounted(play_, window_of(play_))


def test_a_flood_after_the_last_turn_is_folded_but_for_the_newest() -> None:
    play_ = roomy()
    turn(play_, "a")
    play_.absorb([Arrived(kind="event", source="s", key=str(n), payload="many words " * 120) for n in range(100)])
    folds(play_)
    assert isinstance(play_.wants, AskModel)
    assert window_of(play_).receipt["total"] < EASY_TOKENS + 3_000
    accounted(play_, window_of(play_))


def test_five_thousand_events_fit_and_what_only_event_3_said_can_be_opened() -> None:
    play_ = roomy()
    play_.absorb([Arrived(kind="event", source="s", key="e", payload={"n": n, "order": f"ord_{n}_x"}) for n in (2, 3)])
    while play_.state.seq < 5_000:
        if isinstance(play_.wants, Summarise):
            first, last = play_.state.boundary, play_.wants.last
            folds(play_, mechanical("earlier notes", rows(play_)[first - 1 : last]))
        elif play_.state.seq % 50 == 0 and isinstance(play_.wants, AskModel) and play_.state.used.decisions < 95:
            turn(play_, str(play_.state.seq))
        else:
            play_.absorb([Arrived(kind="event", source="s", key="e", payload={"n": play_.state.seq})])
    if isinstance(play_.wants, Summarise):
        folds(play_)
    window = window_of(play_)
    accounted(play_, window)
    assert window.receipt["total"] < 20_000 and "ord_3_x" not in window.user
    assert len(play_.state.model_dump_json()) < 10_000, "and the state is as small as it was"
    assert "ord_3_x" in peek([row for row in rows(play_)[2:20] if row.type != "ModelAsked"], 3, 1)


def test_the_menu_has_pages_once_there_is_something_to_turn() -> None:
    task = play(PLAYER, {"text": "hello"})
    assert "next_page" not in PLAYER.offered(task)
    cut = play(PLAYER, {"text": "hello"}, gives(Look(topic="x"), [LONG * 2]))
    assert "next_page" in PLAYER.offered(cut)
    asked = play(PLAYER, {"text": "hello"}, gives(Look(topic="x"), [LONG * 2]), NextPage(event=4, page=2))
    assert isinstance(asked.wants, OpenPage)


@pytest.mark.parametrize(
    "text", [LONG * 30, "漢字仮名" * 4_000, "<&>" * 9_000, "a" * 30_000, "🇩🇪" * 5_000, "x\n" * 9_000]
)
def test_pages_are_the_text_and_none_is_too_long(text: str) -> None:
    found, number, left = [], 1, len(text)
    while left:
        part = page(text, number)
        assert part is not None
        assert tokens_of(part[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) <= PAGE_TOKENS
        found.append(part[0])
        number, left = number + 1, part[1]
    assert "".join(found) == text and page(text, number) is None


def test_opening_what_is_not_there_teaches_what_is() -> None:
    play_ = roomy()
    turn(play_, "a", result="short")
    seen = [row for row in rows(play_) if row.type != "ModelAsked"]
    assert peek(seen, 1, 1).count("Event ") == 3, "what is small shares a page"
    for event, number, told in ((2, 1, "The next one is event 3"), (3, 7, "no page 7"), (40, 1, "none after it")):
        with pytest.raises(ToolError, match=told):
            peek([row for row in seen if row.seq >= event], event, number)


def test_a_summary_by_rule_names_every_event_and_keeps_its_size() -> None:
    play_ = roomy()
    for number in range(6):
        turn(play_, f"topic {number}")
        if isinstance(play_.wants, Summarise):
            break
    seen = [row for row in rows(play_) if row.type != "ModelAsked"]
    text = mechanical("what was known before", seen)
    assert text.startswith("what was known before") and "3 decided tool=look by=model" in text
    many = mechanical(LONG, seen * 100)
    assert tokens_of(many) <= SUMMARY_TOKENS and "are not listed here" in many


def test_failures_of_the_model_are_resolved_by_its_next_decision() -> None:
    lost = Failed(type="timeout", message="no answer", then="retry", not_before=EPOCH + timedelta(seconds=1))
    task = play(PLAYER, {"text": "hello"}, lost, later(seconds=5), Look(topic="x"))
    assert task.state.view.spare == ((2, "resolved", 5),)


def test_a_menu_that_is_too_long_is_refused_with_the_longest_tool() -> None:
    class Wordy(Read[int]):
        __doc__ = "Say much. Use when few words would do. " * 150

        def run(self, ctx: Ctx) -> int:
            return 1

    with pytest.raises(DeclarationError, match=r"tokens of menu.*The longest is wordy"):
        Agent(name="a", tools=[Wordy])


def test_no_event_is_counted_for_more_than_is_shown() -> None:
    play_ = roomy()
    play_.absorb([Arrived(kind="event", source="s", key="k", payload="<" * 50_000)])
    assert play_.state.window[-1][1] == SHOWN_TOKENS
    rest = window_of(play_).receipt["projected"]
    assert rest[0][0] == 2 and rest[0][1] <= SHOWN_TOKENS


def test_a_prompt_that_is_too_long_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SYSTEM_TOKENS", 5)
    with pytest.raises(DeclarationError, match=r"its prompt is \d+ tokens, of which every question .* at most 5"):
        registry.load("tests.agents")


def test_what_is_repeated_after_something_gave_way_stays_until_the_next_time() -> None:
    play_ = roomy()
    for topic in ("same", "a", "b", "same", "c", "d"):
        turn(play_, topic)
    before = window_of(play_)
    turn(play_, "a", result="short")
    after = window_of(play_)
    assert "gone" in before.user and after.prefix == before.prefix
    assert after.user.startswith(before.user.removesuffix("\n</task>")), "the window only grows in between"
