"""Connections: one pool of autocommitting connections, transactions that are asked for, and a session for tools.

Statements go to psycopg directly, the hot ones through `quick`; SQLAlchemy's pool hands the connections out and serves
the sessions that tools write with. No statement leaves anything behind in a session but prepared ones (PgBouncer in
transaction mode is safe from 1.21 on, which keeps account of them).
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DisconnectionError, OperationalError, SQLAlchemyError, TimeoutError
from sqlalchemy.orm import Session

DEAD_PEER = {
    "keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip
"""A server that vanished without a word is noticed within half a minute; the system's own patience is two hours."""
Connection = psycopg.Connection[tuple[Any, ...]]


UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, TimeoutError)
"""What is raised when the database cannot be reached, or has no connection free: trying again may help."""


class DirtyTransaction(Exception):
    """A database error was swallowed inside the tool, and PostgreSQL would turn the commit into a rollback; or the tool
    ended the transaction.
    """


class ToolSession(Session):
    """The session a tool gets: it may read and write, and never decides about the transaction."""

    def commit(self) -> None:
        """Refused: the step commits, once, with everything it did."""
        raise RuntimeError("A tool does not commit. Its rows are committed together with the step.")

    def rollback(self) -> None:
        """Refused, as commit is."""
        raise RuntimeError("A tool does not roll back. Raise ToolError to say that it did not happen.")

    def close(self) -> None:
        """Refused, as commit is."""
        raise RuntimeError("A tool does not close the session it was given.")


class Database:
    """A bounded pool to one database. `url` is an SQLAlchemy URL; threads wait for a free connection up to 30 s."""

    def __init__(self, url: str, *, size: int = 12, application: str = "twelvefold") -> None:
        self.engine = create_engine(
            url.replace("postgresql://", "postgresql+psycopg://", 1),
            pool_size=size,
            max_overflow=0,
            pool_timeout=30,
            pool_reset_on_return=None,
            connect_args={
                "connect_timeout": 5,
                "application_name": application,
                "prepare_threshold": None,
                **DEAD_PEER,
            },
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
        )
        event.listen(self.engine, "checkout", _must_live)
        self._unit = threading.local()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """An autocommitting connection; a broken one is thrown away."""
        fairy = self.engine.raw_connection()
        connection = cast(Connection, fairy.driver_connection)
        try:
            yield connection
        except BaseException:
            if connection.broken or connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
                fairy.invalidate()
            raise
        finally:
            fairy.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection inside BEGIN … COMMIT, rolled back when the block raises."""
        with self.connection() as connection, connection.transaction():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[tuple[Connection, Callable[[], ToolSession]]]:
        """A transaction, and a function that makes the session a tool may use inside it."""
        with self.engine.connect() as bound:
            connection = cast(Connection, bound.connection.driver_connection)
            with connection.transaction():
                self._unit.connection = connection
                try:
                    yield connection, lambda: ToolSession(bind=bound, autoflush=True, expire_on_commit=False)
                finally:
                    self._unit.connection = None

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """A connection to read with: that of this thread's open unit of work, as waiting for a second one could wait
        for ever when every thread does.
        """
        mine: Connection | None = getattr(self._unit, "connection", None)
        if mine is not None:
            yield mine
        else:
            with self.connection() as connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One REPEATABLE READ READ ONLY transaction, for looking at several things at one moment."""
        with self.engine.connect() as bound:
            connection = cast(Connection, bound.connection.driver_connection)
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield ToolSession(bind=bound)

    def rows(self, sql: LiteralString, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of one statement as dictionaries."""
        with self.connection() as connection:
            return rows(connection, sql, params)

    def answers(self) -> bool:
        """Whether the database answers now and our tables are there."""
        try:
            self.rows("SELECT 1 FROM agent_tasks LIMIT 1")
        except (psycopg.Error, SQLAlchemyError):
            return False
        return True

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _must_live(connection: Connection, *_: object) -> None:
    """On checkout: a connection that says something while idle has been ended by the server; take another."""
    if connection.closed:
        raise DisconnectionError
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        raise DisconnectionError


def rows(connection: Connection, sql: LiteralString, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows of one statement on this connection, as dictionaries."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(sql, params).fetchall()


def in_transaction(connection: Connection) -> bool:
    """Whether the connection stands inside a transaction, even a failed one."""
    return connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def must_be_clean(connection: Connection) -> None:
    """Raise DirtyTransaction when an earlier statement of this transaction failed, or ended it, and nobody said so;
    OperationalError when the connection was lost meanwhile.
    """
    if connection.broken:
        raise psycopg.OperationalError("the connection was lost inside the tool")
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise DirtyTransaction
