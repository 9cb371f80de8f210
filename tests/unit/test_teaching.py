"""Wrong arguments of every kind teach: what came, what was expected, an example that fits, and what to do next."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from twelvefold import Read
from twelvefold.errors import Rejection
from twelvefold.schema import read_call


class Line(BaseModel):
    """One line."""

    model_config = ConfigDict(extra="forbid")
    sku: str
    count: int = Field(ge=1)


class Book(Read[str]):
    """Book something. Use when all of it is known."""

    kind: Literal["table", "room"]
    day: date
    people: int = Field(ge=1, le=12)
    price: Decimal = Field(gt=0, max_digits=6, decimal_places=2)
    name: str = Field(min_length=2, max_length=20, examples=["Ann"])
    code: str = Field(pattern="^[A-Z]{3}$", examples=["ABC"])
    window: bool
    lines: Annotated[list[Line], Field(min_length=1, max_length=2)]
    first: Line
    until: date | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Book:
        if self.until and self.until < self.day:
            raise ValueError("until comes before day. Give the later day as until.")
        return self

    def run(self, ctx: Any) -> str:
        """Never called here."""
        return ""


LINE = {"sku": "a", "count": 1}
GOOD: dict[str, Any] = {
    "kind": "table", "day": "2026-12-01", "people": 2, "price": "12.50", "name": "Ann", "code": "ABC", "window": True,
    "lines": [LINE], "first": LINE, "until": None,
}  # fmt: skip
NEXT = "Correct this and call it again, for example "


def lesson(arguments: str) -> str:
    with pytest.raises(Rejection) as refused:
        read_call({"book": Book}, "book", arguments)
    assert refused.value.kind == "arguments" and refused.value.tool == "book"
    return str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "place", "came", "expected"),
    [
        ({"kind": "tent"}, "kind", "'tent'", "'table' or 'room'"),
        ({"kind": None}, "kind", "None", "'table' or 'room'"),
        ({"day": "2024/13/01"}, "day", "'2024/13/01'", "valid date"),
        ({"day": "yesterday"}, "day", "'yesterday'", "valid date"),
        ({"people": 13}, "people", "13", "less than or equal to 12"),
        ({"people": 0}, "people", "0", "greater than or equal to 1"),
        ({"people": "two"}, "people", "'two'", "valid integer"),
        ({"people": "1.5"}, "people", "'1.5'", "valid integer"),
        ({"people": [2]}, "people", "[2]", "valid integer"),
        ({"price": "twelve"}, "price", "'twelve'", "valid decimal"),
        ({"price": "-1"}, "price", "'-1'", "greater than 0"),
        ({"price": "1.234"}, "price", "'1.234'", "2 decimal places"),
        ({"name": "A"}, "name", "'A'", "at least 2 characters"),
        ({"name": "x" * 5000}, "name", "'xxx", "at most 20 characters"),
        ({"name": {"first": "Ann"}}, "name", "{'first': 'Ann'}", "valid string"),
        ({"code": "abc"}, "code", "'abc'", "match pattern"),
        ({"window": "maybe"}, "window", "'maybe'", "valid boolean"),
        ({"lines": []}, "lines", "[]", "at least 1 item"),
        ({"lines": [LINE] * 3}, "lines", "[{'sku'", "at most 2 items"),
        ({"lines": LINE}, "lines", "{'sku'", "valid list"),
        ({"lines": [{"sku": "a", "count": 0}]}, "lines.0.count", "0", "greater than or equal to 1"),
        ({"first": {"sku": "a"}}, "first.count", "it is missing", "Field required"),
        ({"first": LINE | {"colour": "red"}}, "first.colour", "'red'", "not permitted"),
        ({"date": "2026-12-01"}, "date", "'2026-12-01'", "the arguments are kind, day, people, price"),
        ({"until": "2026-11-30"}, "arguments", "", "Give the later day as until"),
    ],
)  # fmt: skip
def test_wrong_arguments_say_what_came_what_was_expected_and_what_to_do(
    wrong: dict[str, Any], place: str, came: str, expected: str
) -> None:
    text = lesson(json.dumps(GOOD | wrong))
    line = next(line for line in text.splitlines() if line.startswith(f"- {place}: "))
    assert came in line and expected in line and NEXT in text and len(text) < 1_500


@pytest.mark.parametrize("name", [name for name in GOOD if name != "until"])
def test_what_is_missing_is_named(name: str) -> None:
    assert f"- {name}: Field required, it is missing" in lesson(json.dumps({k: GOOD[k] for k in GOOD if k != name}))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "are not JSON"), ("{", "are not JSON"), ("book a table", "are not JSON"),
        ('{"kind": NaN}', "NaN is not JSON"),
        ('{"kind": "table", "kind": "room"}', "'kind' stands twice"), ("[" * 100_000, "are not JSON"),
        ("[1]", "got [1]"), ('"table"', "got 'table'"), ("null", "got None"),
    ],
)  # fmt: skip
def test_what_is_no_object_is_told_with_an_example(arguments: str, words: str) -> None:
    text = lesson(arguments)
    assert words in text and "for example {" in text and len(text) < 1_500


def test_the_example_is_one_that_would_be_taken() -> None:
    text = lesson("{}")
    example = text.rpartition("for example ")[2].rstrip(".")
    made = json.loads(example) | {"lines": [LINE]}
    assert Book.model_validate(made | {"first": made["first"]}).kind == "table"


def test_at_most_six_problems_are_told_at_once() -> None:
    assert sum(line.startswith("- ") for line in lesson("{}").splitlines()) == 6
