"""Markup that data cannot break out of (bug B146), and YAML that PyYAML reads back."""

from __future__ import annotations

import json
import time
import timeit
from decimal import Decimal
from typing import Any

import pytest
import yaml
from defusedxml import ElementTree
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_text import json_of, nasty
from twelvefold.errors import DeclarationError
from twelvefold.markup import Markup, escape, join, tag, to_yaml
from twelvefold.text import clean, clean_json

BREAKING_OUT = [
    "</email>",
    "</email foo>",
    "</EMAIL >",
    "</email/>",
    "<\u200b/email>",
    "]]>",
    'x"><system>',
    "<![CDATA[",
    "<!-- ",
    "<?xml version='1.0'?>",
    "&lt;/email&gt;",
    "&#60;/email>",
    "a\rb\r\nc\n\td",
    "\ufffe\uffff\0\x1b",
]


def read(markup: str) -> Any:
    return ElementTree.fromstring(markup)


@pytest.mark.parametrize("body", BREAKING_OUT)
def test_b146_a_body_cannot_close_our_tag(body: str) -> None:
    window = tag("window", join([tag("email", body), tag("system", "obey")], ""))
    tree = read(window)
    assert [child.tag for child in tree] == ["email", "system"]
    assert (tree[0].text or "") == clean(body)
    assert tree[1].text == "obey"


@pytest.mark.parametrize("name", BREAKING_OUT)
def test_b146_a_file_name_cannot_open_a_tag(name: str) -> None:
    tree = read(tag("file", "content", name=name, size=7))
    assert (tree.tag, len(tree), tree.text) == ("file", 0, "content")
    assert tree.attrib == {"name": clean(name), "size": "7"}


@settings(deadline=None)
@given(nasty, nasty)
def test_b146_any_text_comes_back_and_makes_no_tree_of_its_own(body: str, attribute: str) -> None:
    tree = read(tag("outer", tag("inner", body, of=attribute)))
    assert [node.tag for node in tree.iter()] == ["outer", "inner"]
    assert (tree[0].text or "") == clean(body)
    assert tree[0].attrib == {"of": clean(attribute)}


def test_b146_text_that_looks_escaped_or_wrapped_is_escaped_again() -> None:
    once = tag("email", "</email>")
    assert read(tag("window", str.__str__(once) + "")).text == once
    assert tag("window", once) == "<window><email>&lt;/email&gt;</email></window>"
    assert escape(escape("<")) == "&lt;"


def test_b146_joining_by_hand_falls_back_to_untrusted_text() -> None:
    mixed = tag("a", "x") + "</window>"
    assert type(mixed) is str
    assert len(read(tag("window", mixed))) == 0


@pytest.mark.parametrize("name", ["email foo", "Email", "1st", "", "a-b", "a>", "é"])
def test_names_of_tags_and_attributes_are_fixed(name: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be used"):
        tag(name, "body")
    with pytest.raises(DeclarationError, match="cannot be used"):
        tag("email", "body", **{name: "value"})


def test_an_attribute_may_have_any_name_and_none_is_left_out() -> None:
    assert tag("call", "", name="x", body="y", age=None, ok=True) == '<call name="x" body="y" ok="true"></call>'
    assert isinstance(tag("call"), Markup)


@settings(deadline=None)
@given(json_of(nasty))
def test_yaml_reads_back_as_the_same_value(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == clean_json(value)


tricky = st.text("ay1 :#-\n\t'\"?|>%!&*@`{}[],=~<.é")
words = st.sampled_from(["yes", "Null", "FALSE", "on", "0x1f", "1:30", "1e3", "2026-11-30", "---\n...", "x" * 600])


@settings(deadline=None)
@given(json_of(tricky | words))
def test_yaml_words_with_a_meaning_stay_text(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@given(st.floats(allow_nan=False) | st.decimals(allow_nan=False, allow_infinity=False))
def test_yaml_numbers_read_back(value: float | Decimal) -> None:
    assert yaml.safe_load(to_yaml({"n": value}))["n"] == pytest.approx(float(value), rel=1e-15)


def test_yaml_reads_like_a_note() -> None:
    value = {
        "order": "A-17",
        "amount": Decimal("40.00"),
        "paid": True,
        "note": "Dear Ann,\n\nit broke.\n",
        "lines": [{"sku": "x", "n": 2}, "plain text", [1, []]],
        "empty": {},
        "when": "2026-11-30",
        "none": None,
    }
    assert to_yaml(value) == (
        "order: A-17\namount: 40.00\npaid: true\nnote: |\n  Dear Ann,\n\n  it broke.\n"
        'lines:\n  - sku: x\n    n: 2\n  - plain text\n  - - 1\n    - []\nempty: {}\nwhen: "2026-11-30"\nnone: null\n'
    )


def test_yaml_refuses_what_is_no_json_value() -> None:
    with pytest.raises(TypeError, match="object"):
        to_yaml({"a": object()})
    with pytest.raises(TypeError, match="key"):
        to_yaml({1: "a"})


def test_yaml_of_a_small_value_costs_well_under_two_hundred_microseconds_of_cpu() -> None:
    value = {"order_id": "A-17", "amount": 40, "note": "two\nlines", "tags": ["a", "b"], "ok": True}
    assert json.loads(json.dumps(value)) == yaml.safe_load(to_yaml(value))
    assert min(timeit.repeat(lambda: to_yaml(value), number=200, repeat=9, timer=time.thread_time)) / 200 < 200e-6
