"""The hot statements, two or three a step, straight to libpq: a fraction of what the driver's cursors cost.

Parameters travel as text and PostgreSQL infers their types, so a statement casts where nothing else tells (`VALUES`).
A statement that a connection sees for the second time is prepared there; the driver must prepare nothing of its own
(`prepare_threshold=None`), because after a rollback it deallocates all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, pq

from .database import Connection

PLACEHOLDER = re.compile(r"%\((\w+)\)s")
MOST_KNOWN = 200
Row = tuple[Any, ...]
"""Every column as PostgreSQL's text, None for NULL."""


def quick(connection: Connection, sql: str, params: Mapping[str, Any]) -> list[Row]:
    """Execute one statement with named placeholders. Raises what a cursor of the driver would raise."""
    text, names = _numbered(sql)
    values: Any = [WIRE[type(value)](value) for value in map(params.__getitem__, names)]
    line = connection.pgconn
    name = _name(connection, text)
    result = line.exec_params(text, values) if name is None else line.exec_prepared(name, values)
    _check(line, result)
    return [
        tuple(
            None if cell is None else cell.decode()
            for cell in (result.get_value(row, i) for i in range(result.nfields))
        )
        for row in range(result.ntuples)
    ]


def _text(value: str) -> bytes:
    found = value.encode()
    if b"\0" in found:  # libpq would end the value there without a word
        raise psycopg.DataError("PostgreSQL text cannot hold NUL (0x00).")
    return found


WIRE: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    str: _text,
    bool: lambda value: b"t" if value else b"f",
    int: lambda value: b"%d" % value,
    float: lambda value: repr(value).encode(),
    Decimal: lambda value: str(value).encode(),
    UUID: lambda value: str(value).encode(),
    datetime: lambda value: value.isoformat().encode(),
    list: lambda value: b"{%b}" % b",".join(b"%d" % item for item in value),
}
"""How a value travels, lists being of integers; a type that is not here is a mistake of ours and raises KeyError."""


@lru_cache(maxsize=512)
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    names: dict[str, int] = {}
    text = PLACEHOLDER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", sql)
    return text.encode(), tuple(names)


_numbers = count(1)
_known: WeakKeyDictionary[Connection, dict[bytes, bytes]] = WeakKeyDictionary()


def _name(connection: Connection, text: bytes) -> bytes | None:
    """The name under which the statement is prepared on this connection; None the first time, and for the 201st."""
    known = _known.setdefault(connection, {})
    name = known.get(text)
    if name is None:
        if len(known) < MOST_KNOWN:
            known[text] = b""
        return None
    if not name:
        name = b"twelvefold_%d" % next(_numbers)
        _check(connection.pgconn, connection.pgconn.prepare(name, text))
        known[text] = name
    return name


def _check(line: pq.abc.PGconn, result: pq.abc.PGresult) -> None:
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return
    if line.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise errors.error_from_result(result)
