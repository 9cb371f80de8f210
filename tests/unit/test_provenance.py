"""An id that a model writes was seen before; what it reports came out of results. Code and people are believed."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from twelvefold import Agent, Ctx, Done, Effect, Free, Known, Read, Task, Text, ToolError, Write
from twelvefold.events import Arrived, DoneRefused, Failed, Prefetched, Rejected, Returned, Stuck
from twelvefold.facts import MORE, MOST_FACTS, numbers, tokens_in
from twelvefold.provenance import facts_of
from twelvefold.testing import Played, gives, play, raises
from twelvefold.tool import Tool


class Order(BaseModel):
    """An order."""

    order_id: str
    total: Decimal = Decimal(0)
    link: str = ""


class Place(BaseModel):
    """Where to."""

    shop_id: str
    note: str = ""


class Find(Read[list[Order]]):
    """Find orders. Use when the id is missing."""

    text: str

    def run(self, ctx: Ctx) -> list[Order]:
        """Never called here."""
        return []

    def check(self, result: list[Order]) -> str | None:
        """By rule."""
        return None if result else "empty: nothing found"


class Speed(Enum):
    """How fast."""

    FAST = "fast"


class Refund(Effect[Order]):
    """Pay back. Use once."""

    order_id: str
    amount: Decimal = Decimal(1)
    reason: str = "broken"
    speed_id: Speed = Speed.FAST
    way_id: Literal["card", "cash"] = "card"
    memo_ref: Annotated[str, Free] = ""
    batch_id: str | None = None
    places: list[Place] = Field(default_factory=list)

    def run(self, ctx: Ctx) -> Order:
        """Never called here."""
        return Order(order_id="")


class Note(Write[int]):
    """Note it. Use at the end."""

    text: str
    about_id: str = "x"
    people: list[Annotated[str, Known]] = Field(default_factory=list)

    def write(self, db: Any) -> int:
        """Never called here."""
        return 1


class Outcome(BaseModel):
    """What came of it."""

    text: str = ""
    refund_id: str = ""
    paid: Decimal = Decimal(0)
    own_ref: Annotated[str, Free] = ""
    state: Literal["paid", "open"] = "open"


def shop(**change: Any) -> Agent:
    declared: dict[str, Any] = {"name": "shop", "tools": [Find, Refund, Note], "returns": Text}
    return Agent(**(declared | change))


MAIL = {"text": "Please refund ord_81f2 (12,00 €), see https://shop.example/o/ord_7c?x=1."}


def last(task: Played) -> Any:
    return task.log[-1].event


def refused(call: Tool[Any], *moves: Any, agent: Agent | None = None, event: Any = MAIL) -> str:
    """What the model reads when this call is refused; empty when it is not."""
    found = last(play(agent or shop(), event, *moves, call))
    return found.text if isinstance(found, Rejected) and found.kind == "unknown_value" else ""


def test_an_id_of_an_effect_is_known_from_any_earlier_event_and_else_refused_with_what_could_be_meant() -> None:
    assert not refused(Refund(order_id="ord_81f2"))
    text = refused(Refund(order_id="ord_81f3"))
    assert "refund was not called" in text and "order_id: 'ord_81f3' (known: ord_81f2" in text
    task = play(shop(), MAIL, Refund(order_id="ord_81f3"))
    assert task.state.call is None and task.decisions == 1 and not task.denied(Refund)
    assert isinstance(last(play(shop(), MAIL, *[Refund(order_id=f"ord_{n}") for n in (1, 2)])), Stuck)


@pytest.mark.parametrize(
    ("moves", "value"),
    [
        ([], "ord_7c"),
        ([gives(Find(text="milk"), [Order(order_id="A/9 f")])], "A/9 f"),
        ([raises(Find(text="milk"), ToolError("No such order. Did you mean ord_55a?"))], "ord_55a"),
        ([Arrived(kind="event", source="s", key="k", payload={"order": 4711})], "4711"),
        ([Arrived(kind="message", source="s", key="k", payload={"text": "订单ord_99z已付款"})], "ord_99z"),
    ],
)  # fmt: skip
def test_every_kind_of_event_that_brings_something_is_a_source(moves: list[Any], value: str) -> None:
    assert not refused(Refund(order_id=value), *moves) and (not moves or refused(Refund(order_id=value)))


def test_what_was_prefetched_is_known() -> None:
    agent = shop(prefetch=[orders])
    found = Prefetched(found={"orders": [{"order_id": "ord_pre1"}]})
    assert not refused(Refund(order_id="ord_pre1"), found, agent=agent)


def orders(ctx: Ctx) -> list[Order]:
    """Never called here."""
    return []


@pytest.mark.parametrize(
    "move",
    [
        raises(Find(text="ord_bad1"), ToolError("There is no order ord_bad1.")),
        Find(text="ord_bad1"),
        Returned(call=3, result=[{"order_id": "ord_bad1"}], check="empty: as was asked for"),
    ],
)
def test_what_a_model_made_up_is_not_known_by_being_given_back(move: Any) -> None:
    moves = [Find(text="ord_bad1"), move] if isinstance(move, Returned) else [move]
    moves += [Failed(call=3, type="x", message="ord_bad1")] if isinstance(move, Find) else []
    assert "ord_bad1" in refused(Refund(order_id="ord_bad1"), *moves)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"batch_id": "b-77"}, "batch_id"),
        ({"places": [{"shop_id": "s-12"}]}, "places.shop_id"),
        ({"memo_ref": "memo-1"}, ""), ({"reason": "because-12"}, ""), ({"batch_id": None}, ""),
        ({"way_id": "cash"}, ""),
    ],
)  # fmt: skip
def test_ids_by_name_are_known_also_inside_and_free_closed_and_untouched_fields_are_not_asked(
    change: dict[str, Any], place: str
) -> None:
    text = refused(Refund.model_validate({"order_id": "ord_81f2"} | change))
    assert (f"- {place}: " in text) == bool(place) and bool(text) == bool(place)


def test_other_tools_know_only_what_is_marked() -> None:
    assert not refused(Note(text="made-up-1", about_id="made-up-2"))
    assert "people: 'eve-1'" in refused(Note(text="x", people=["ord_81f2", "eve-1"]))


def test_what_code_decides_is_not_asked_about() -> None:
    task = play(shop(steer=by_code), MAIL)
    assert task.state.call is not None and task.state.call.tool == "refund"


def by_code(task: Task) -> Tool[Any]:
    return Refund(order_id="made-up-9")


PAID = gives(Refund(order_id="ord_81f2", amount=Decimal("12.00")), Order(order_id="re_5x5", total=Decimal("11.50")))


@pytest.mark.parametrize(
    "text",
    [
        "Paid 12,00 € for ord_81f2 as re_5x5.", "EUR 12 and 11.5 EUR", "12.00 and 11,50", "Nothing of it.",
        "On 2026-12-01 at 10:30, 24h later, 3 of 5, 100km, 50%, 12.5%, the 2nd.",
    ],
)  # fmt: skip
def test_what_results_gave_may_be_reported_however_an_amount_is_written(text: str) -> None:
    assert play(shop(), MAIL, PAID, Done(outcome={"text": text})).status == "done"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Paid 13.00", "13.00"), ("Paid €13", "13"), ("Refund re_5x6 is out", "re_5x6"),
        ("See https://evil.example/?d=1.", "https://evil.example/?d=1"), ("Number 123456789", "123456789"),
        ("See https://shop.example/o/ord_7c?x=1", "https://shop.example/o/ord_7c?x=1"),
    ],
)  # fmt: skip
def test_done_is_refused_where_it_reports_what_no_result_holds(text: str, named: str) -> None:
    task = play(shop(), MAIL, PAID, Done(outcome={"text": text}))
    assert isinstance(last(task), DoneRefused) and f"outcome.text: {named!r}" in last(task).why


def test_a_claim_of_work_that_was_not_done_is_refused() -> None:
    task = play(shop(), MAIL, Done(outcome={"text": "I refunded 12.00 for ord_81f2."}))
    assert isinstance(last(task), DoneRefused) and "12.00" in last(task).why and "ord_81f2" in last(task).why


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ({"refund_id": "re_5x5", "paid": "11.5"}, ""), ({"own_ref": "made-up-12"}, ""), ({"state": "paid"}, ""),
        ({"refund_id": "r"}, "refund_id"), ({"paid": "99"}, "paid"), ({"text": "re_5x5 by made_up_1"}, "text"),
    ],
)  # fmt: skip
def test_a_typed_outcome_is_held_to_it_field_by_field(outcome: dict[str, Any], named: str) -> None:
    task = play(shop(returns=Outcome), MAIL, PAID, Done(outcome=outcome))
    assert (task.status == "done") == (not named)
    assert not named or f"- outcome.{named}: " in last(task).why


def test_a_flawed_result_and_what_people_wrote_are_no_ground_for_a_report() -> None:
    flawed: list[Any] = [Find(text="x"), Returned(call=3, result=[{"order_id": "ord_77x"}], check="suspicious: odd")]
    assert isinstance(last(play(shop(), MAIL, *flawed, Done(outcome={"text": "ord_77x"}))), DoneRefused)


def test_an_agent_that_can_look_nowhere_may_say_what_it_likes() -> None:
    assert play(Agent(name="faq", tools=[]), MAIL, Done(outcome={"text": "Call 0800123456."})).status == "done"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("12", ["12"]), ("12.00", ["12"]), ("12,00", ["12"]), ("1.234,50", ["1234.5"]), ("1,234.50", ["1234.5"]),
        ("1,234", ["1234", "1.234"]), ("1'234.5", ["1234.5"]), ("1.234.567", ["1234567"]), ("0012", ["12"]),
        ("-3", ["3"]),
        ("1.4.2", []), ("12.", ["12"]), ("1,2,3", []), ("9" * 40, []), ("", []), ("1,23,456", []),
    ],
)  # fmt: skip
def test_a_number_is_read_as_it_is_written_here_and_there(written: str, values: list[str]) -> None:
    assert numbers(written) == values


def test_plain_words_are_no_tokens_and_ids_of_every_shape_are() -> None:
    text = "Hello Ann, order ORD-81F2 at shop/7 on 10:30, see #4711 and 3f2504e0-4f89-11d3-9a0c-0305e82c3301."
    found = set(tokens_in({"text": text, "plan_id": "gold plan", "n": 3, "ok": True}))
    assert {"ORD-81F2", "shop/7", "4711", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "gold plan", "3"} <= found
    assert not {"Hello", "Ann", "order", "ok", "True", "gold"} & found


def test_of_a_huge_event_the_first_tokens_are_kept_and_that_there_are_more() -> None:
    event = Arrived(kind="event", source="s", key="k", payload=[f"id-{n}" for n in range(100_000)])
    facts = facts_of(7, event, None)
    assert len(facts) == MOST_FACTS + 1 and facts[-1].token == f"{MORE}7" and facts[0].token == "id-0"


def test_the_mark_is_found_by_the_model_of_a_field() -> None:
    class Marked(BaseModel):
        a: Annotated[str, Known] = Field(examples=["x"])

    assert Known in Marked.model_fields["a"].metadata
