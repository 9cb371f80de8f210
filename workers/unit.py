"""The transaction of one commit: opened only when more than one statement needs it, committed when its block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from .store.database import Connection, Database, ToolSession, in_transaction, must_be_clean

SAVEPOINT = "SAVEPOINT rows; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '30s'"


class Unit:
    """A unit of work. `connection()` opens it; leaving the block commits, an exception rolls everything back."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._stack = ExitStack()
        self._connection: Connection | None = None
        self._make_session: Callable[[], ToolSession] | None = None
        self._saved = False

    def __enter__(self) -> Unit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._connection is not None

    def connection(self) -> Connection:
        """The connection inside the transaction, opened now if need be."""
        if self._connection is None:
            self._connection, self._make_session = self._stack.enter_context(self._db.writing())
        return self._connection

    @contextmanager
    def savepoint(self) -> Iterator[ToolSession]:
        """A session for a tool's rows, undone when the block raises. DirtyTransaction when it swallowed an error."""
        connection = self.connection()
        assert self._make_session is not None
        connection.execute(SAVEPOINT)
        self._saved = True
        session = self._make_session()
        try:
            yield session
            must_be_clean(connection)
            session.flush()
            must_be_clean(connection)
        except Exception:
            self.undo()
            raise
        finally:
            session.expunge_all()

    def undo(self) -> None:
        """Undo the tool's rows; what was written before them stays. There is nothing to undo in a lost transaction, nor
        in one that the tool itself has ended.
        """
        if self._saved and self._connection is not None and in_transaction(self._connection):
            self._connection.execute("ROLLBACK TO SAVEPOINT rows")
