"""Forms as inbound mail providers send them: `multipart/form-data` or urlencoded, read within limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from .problem import Problem

T = TypeVar("T")
MOST_FIELDS = 200
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class File:
    """A file in a form."""

    name: str
    type: str
    content: bytes


@dataclass(slots=True)
class Form:
    """The fields, each once, and the files by the field they came in. A byte of a field that is no UTF-8 is a surrogate
    (PEP 383), so that a whole mail in it can be had as it was.
    """

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)

    def need(self, name: str) -> str:
        """A field that has to be there, as text. Raises Problem 400."""
        if name not in self.fields:
            raise Problem(400, "A field is missing", f"The form has no field {name}.")
        return self.text(name)

    def text(self, name: str) -> str:
        """A field as text, empty where it is not there."""
        return self.raw(name).decode("utf-8", "replace")

    def raw(self, name: str) -> bytes:
        """The bytes of a field."""
        return self.fields.get(name, "").encode("utf-8", "surrogateescape")


def read_form(body: bytes, content_type: str) -> Form:
    """The form. Raises Problem 400 for what is none, or has too many parts, and 415 for another content type."""
    kind, options = parse_options_header(content_type)
    if kind == b"application/x-www-form-urlencoded":
        return _urlencoded(body)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise Problem(
            415, "Not a form", "Send multipart/form-data with a boundary, or application/x-www-form-urlencoded."
        )
    parts = _Parts()
    parser = MultipartParser(options[b"boundary"], parts.callbacks())
    try:
        for at in range(0, len(body), _CHUNK):
            parser.write(body[at : at + _CHUNK])
        parser.finalize()
    except FormParserError:
        raise _broken() from None
    if not parts.ended:
        raise _broken()
    return parts.form


def _urlencoded(body: bytes) -> Form:
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise _broken() from None
    form = Form()
    for name, value in pairs:
        _add(form.fields, name, value)
    return form


class _Parts:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.form, self.ended, self._count = Form(), False, 0
        self._begin()

    def callbacks(self) -> Any:
        """What the parser calls."""
        return {
            "on_part_begin": self._begin, "on_part_data": self._data, "on_part_end": self._end, "on_end": self._over,
            "on_header_field": self._name, "on_header_value": self._value, "on_header_end": self._header,
        }  # fmt: skip

    def _begin(self) -> None:
        self._content, self._headers = bytearray(), dict[str, bytes]()
        self._field, self._text = bytearray(), bytearray()

    def _name(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._text += data[start:end]

    def _header(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = bytes(self._text)
        self._field.clear()
        self._text.clear()

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def _end(self) -> None:
        self._count += 1
        if self._count > MOST_FIELDS:
            raise Problem(400, "Too many parts", f"A form has at most {MOST_FIELDS} parts here.")
        kind, options = parse_options_header(self._headers.get("content-disposition", b""))
        name = options.get(b"name")
        if kind != b"form-data" or name is None:
            raise _broken()
        if b"filename" in options:
            type, _ = parse_options_header(self._headers.get("content-type", b"application/octet-stream"))
            file = File(_decoded(options[b"filename"]), _decoded(type), bytes(self._content))
            _add(self.form.files, _decoded(name), file)
        else:
            _add(self.form.fields, _decoded(name), bytes(self._content).decode("utf-8", "surrogateescape"))

    def _over(self) -> None:
        self.ended = True


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _add(known: dict[str, T], name: str, value: T) -> None:
    if name in known:
        raise Problem(400, "A field twice", "A field of a form is there once: two readers could believe different ones")
    known[name] = value


def _broken() -> Problem:
    return Problem(400, "Not a form", "The form cannot be read, or does not end.")
