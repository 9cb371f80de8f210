"""Markup for the model's window: tags that data cannot close, and readable YAML.

Text is escaped, never searched for forbidden words: whatever stands in a mail, a file name or a tool's result, the
window parses as XML to the tree that was meant, and the text comes back as the text gate left it. What is already
markup has its own type, so nothing is escaped twice and no text can claim to be wrapped already; joining `Markup` by
`+` or formatting gives plain text again, which the next tag escapes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from .errors import DeclarationError
from .text import clean, clean_json

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "'": "&#39;", "\n": "&#10;", "\t": "&#9;"})
_SPECIAL = re.compile("[&<>\r]")

_UNQUOTED = re.compile(r"[^\W\d_](?:[^\0-\x20#:\x7f-\xa0\u2028\u2029]|:(?=[^\s:#])|(?<=\S) (?=[^\s#]))*")
_RESERVED = frozenset({"yes", "no", "on", "off", "true", "false", "null"})
_NO_BLOCK = re.compile("[\r\u2028\u2029]")
_LONG_KEY = 500  # YAML allows 1024 code points before the colon; longer ones need the `?` form


class Markup(str):
    """Text that is markup already; only this module makes it, and it is never escaped again."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Untrusted text, cleaned by the text gate and escaped for the body of a tag; `Markup` comes back unchanged."""
    if isinstance(text, Markup):
        return text
    cleaned = clean(text)
    return Markup(cleaned.translate(_TEXT) if _SPECIAL.search(cleaned) else cleaned)


def tag(name: str, body: str = "", /, **attributes: str | int | Decimal | None) -> Markup:
    """`<name attribute="…">body</name>`; a body of `Markup` stands as it is, any other text is untrusted.

    An attribute of None is left out. Raises DeclarationError for a name of a tag or attribute that is not
    `[a-z_][a-z0-9_]*`: names are written by us and never taken from data.
    """
    _check(name, "tag")
    pairs = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{pairs}>{escape(body)}</{name}>")


def join(parts: Iterable[str], separator: str = "\n") -> Markup:
    """The parts one after the other; those that are not `Markup` are escaped, as is the separator."""
    return Markup(escape(separator).join(escape(part) for part in parts))


def to_yaml(value: Any) -> str:
    """Readable YAML of a JSON value (also Decimal and tuple), keys in their order, strings cleaned by the text gate.

    `yaml.safe_load` reads the same value back, a Decimal as float. Ends with a line end. Raises TypeError for
    anything else, since a silent `str()` of an unknown object could show what must not be shown.
    """
    return "\n".join(_node(clean_json(value), "")) + "\n"


def _check(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            f"The {what} name {name!r} cannot be used. Write lower-case letters, digits and _, such as `email_body`, "
            "and put what comes from data into the body or into an attribute's value."
        )


def _attribute(key: str, value: object) -> str:
    _check(key, "attribute")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f' {key}="{clean(text).translate(_ATTRIBUTE)}"'


def _node(value: Any, indent: str) -> Iterator[str]:
    """The lines of a value that starts on a line of its own."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _member(key, member, indent)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _item(item, indent)
    else:
        yield from _headed(indent, _leaf(value, indent))


def _member(key: str, member: Any, indent: str) -> Iterator[str]:
    name = _scalar(key)
    if len(name) > _LONG_KEY:
        yield f"{indent}? {name}"
        yield from _hung(f"{indent}: ", member, indent + "  ")
    elif _nested(member):
        yield f"{indent}{name}:"
        yield from _node(member, indent + "  ")
    else:
        yield from _headed(f"{indent}{name}: ", _leaf(member, indent))


def _item(item: Any, indent: str) -> Iterator[str]:
    yield from _hung(f"{indent}- ", item, indent + "  ")


def _hung(head: str, value: Any, indent: str) -> Iterator[str]:
    """A value that starts behind a dash or colon, with its further lines below."""
    if _nested(value):
        lines = _node(value, indent)
        yield head + next(lines)[len(indent) :]
        yield from lines
    else:
        yield from _headed(head, _leaf(value, indent[:-2]))


def _headed(head: str, lines: list[str]) -> Iterator[str]:
    yield head + lines[0]
    yield from lines[1:]


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _leaf(value: Any, indent: str) -> list[str]:
    if isinstance(value, str):
        return _block(value, indent + "  ") if "\n" in value and _fits_block(value) else [_scalar(value)]
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, int):
        return [int.__repr__(value)]
    if isinstance(value, float | Decimal):
        return [_number(value)]
    if isinstance(value, dict):
        return ["{}"]
    if isinstance(value, list):
        return ["[]"]
    raise TypeError(
        f"{type(value).__name__} cannot be written as YAML. Use str, int, bool, Decimal, None, list or dict."
    )


def _fits_block(text: str) -> bool:
    """Whether a block literal can carry the text: not blank, and with at most one line end at its end."""
    return not text.isspace() and not text.endswith("\n\n") and not _NO_BLOCK.search(text)


def _block(text: str, indent: str) -> list[str]:
    """A block literal. The indentation is named where the text begins with a space or an empty line."""
    named = "2" if text[0] in " \n" else ""
    chomp = "" if text.endswith("\n") else "-"
    lines = text.removesuffix("\n").split("\n")
    return [f"|{named}{chomp}", *(indent + line if line else "" for line in lines)]


def _scalar(text: str) -> str:
    if _bare(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("\u2028", "\\L").replace("\u2029", "\\P")


def _bare(text: str) -> bool:
    return _UNQUOTED.fullmatch(text) is not None and text.lower() not in _RESERVED


def _number(value: float | Decimal) -> str:
    """A number as YAML 1.1 reads it: `1.0e+16`, since `1e+16` would be a string there."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, mark, exponent = str(value).lower().partition("e")
    if "." not in mantissa and (mark or isinstance(value, float)):
        mantissa += ".0"
    return mantissa + mark + exponent
