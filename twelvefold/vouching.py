"""Vouching: an id that a model writes was seen before, and what it reports came out of a result.

The rules are about models. What code decides is its author's word, and what a person edits is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .facts import ID_NAME, NUMBER, keys, links, numbers, runs
from .marks import Free, Known
from .ports import Facts
from .text import shorten
from .tool import Tool

MOST_CANDIDATES = 3
MOST_CLAIMS = 50
"""So many claims of one outcome are looked up."""
_MONEY = r"(?:[€$£¥]|\b(?:EUR|USD|GBP|CHF|JPY|CNY|SEK|PLN|euros?|dollars?|pounds?)\b)"
_AMOUNT = re.compile(
    rf"{_MONEY}\s?({NUMBER})|(?<![\w.,])({NUMBER})\s?{_MONEY}|(?<![\w.,])(\d+[.,]\d\d)(?![\w%]|[.,]\d)", re.IGNORECASE
)
_NO_ID = re.compile(r"\d+[a-z]{1,4}|\d{4}-\d\d-\d\d.*|\d{1,2}:\d\d.*", re.IGNORECASE)
"""What looks like an id in a text and is a quantity, a date or a time."""
_LONG_NUMBER = re.compile(r"\d{6,}")


class Claim(NamedTuple):
    """A value that has to be vouched for: where it stands, how it is written, and the tokens any of which will do."""

    place: str
    text: str
    tokens: tuple[str, ...]


def unknown(call: Tool[Any], facts: Facts) -> str | None:
    """Why a model's call must not be: an id in it stands in no earlier event. None when all do."""
    found = list(_ids(call, call.__spec__.kind == "effect"))
    strange = _missing(found, facts, told=False)
    if not strange:
        return None
    lines = [f"- {claim.place}: {shorten(claim.text, 80)!r}{_nearest(claim, facts)}" for claim in strange[:6]]
    return "\n".join(
        [f"{call.__spec__.name} was not called. These values stand in nothing that this task has seen:", *lines,
         "Use an id exactly as it stands in an event or a result; look it up when there is none."]
    )  # fmt: skip


def unreported(outcome: Any, facts: Facts) -> str | None:
    """Why an outcome must not be reported: an id, an amount or a link in it came out of no result. None: all did."""
    strange = _missing(list(_claims(outcome))[:MOST_CLAIMS], facts, told=True)
    if not strange:
        return None
    lines = [f"- {claim.place}: {shorten(claim.text, 80)!r}{_nearest(claim, facts)}" for claim in strange[:6]]
    return "\n".join(
        ["The outcome says what no successful result of this task holds:", *lines,
         "Report only ids, amounts and links that results gave you, exactly as they did, and leave out the others."]
    )  # fmt: skip


def _missing(claims: Sequence[Claim], facts: Facts, *, told: bool) -> list[Claim]:
    if not claims:
        return []
    held = facts.held(list(dict.fromkeys(token for claim in claims for token in claim.tokens)), told=told)
    return [claim for claim in claims if not any(token in held for token in claim.tokens)]


def _nearest(claim: Claim, facts: Facts) -> str:
    near = get_close_matches(claim.text, dict.fromkeys(facts.near(claim.text)), MOST_CANDIDATES, cutoff=0.5)
    return f" (known: {', '.join(near)})" if near else ""


def _ids(model: BaseModel, by_name: bool, place: str = "") -> Iterator[Claim]:
    """The values of the fields that are ids, by mark or by name; what is nested is looked into."""
    for name, info, value in _fields(model):
        where = f"{place}{name}"
        if Known in _marks(info) or (by_name and ID_NAME.search(name)):
            yield from (Claim(where, text, tuple(keys(text))) for text in _scalars(value))
        else:
            for inner in _models(value):
                yield from _ids(inner, by_name, f"{where}.")


def _claims(value: Any, place: str = "outcome") -> Iterator[Claim]:
    """Every id, amount and link of an outcome: by the type and name of its field, or as its text is written."""
    if isinstance(value, BaseModel):
        for name, _, member in _fields(value):
            where = f"{place}.{name}"
            if ID_NAME.search(name):
                yield from (Claim(where, text, tuple(keys(text))) for text in _scalars(member))
            else:
                yield from _claims(member, where)
    elif isinstance(value, Decimal):
        if value and (values := numbers(format(value, "f"))):
            yield Claim(place, str(value), tuple(values))
    elif isinstance(value, str) and not isinstance(value, Enum):
        yield from _in_text(value, place)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _claims(item, place)


def _in_text(text: str, place: str) -> Iterator[Claim]:
    for link in links(text):
        yield Claim(place, link, tuple(keys(link)))
        text = text.replace(link, " ")
    for found in _AMOUNT.finditer(text):
        written = next(group for group in found.groups() if group).rstrip(".,")
        if values := numbers(written):
            yield Claim(place, written, tuple(values))
    for run in dict.fromkeys([*runs(text), *_LONG_NUMBER.findall(text)]):
        if _is_id(run):
            yield Claim(place, run, tuple(keys(run)))


def _is_id(run: str) -> bool:
    if _LONG_NUMBER.fullmatch(run):
        return True
    digits = sum(char.isdigit() for char in run)
    letters = any(char.isalpha() for char in run)
    enough = digits >= 2 or (digits == 1 and "_" in run)
    return len(run) >= 4 and letters and enough and not _NO_ID.fullmatch(run)


def _fields(model: BaseModel) -> Iterator[tuple[str, FieldInfo, Any]]:
    """The fields a model could have filled freely: neither marked `Free`, nor chosen from what the author lists, nor
    left as the author set them.
    """
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        untouched = not info.is_required() and value == info.default
        if not untouched and Free not in _marks(info) and not _is_closed(info.annotation):
            yield name, info, value


def _marks(info: FieldInfo) -> list[Any]:
    """The marks of a field, those of the items of a list among them."""
    return [*info.metadata, *_inner_marks(info.annotation)]


def _inner_marks(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from _inner_marks(inner)


def _is_closed(annotation: Any) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, Enum) or annotation in (bool, type(None))
    if get_origin(annotation) is Literal:
        return True
    inner = get_args(annotation)
    return bool(inner) and all(_is_closed(each) for each in inner)


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _scalars(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _scalars(item)
    elif value is not None and not isinstance(value, bool) and str(value).strip():
        yield str(value).strip()


def _models(value: Any) -> Iterator[BaseModel]:
    if isinstance(value, BaseModel):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _models(item)
