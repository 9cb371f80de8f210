"""The embedded stack: PostgreSQL, Valkey and a mail catcher from wheels, for `twelvefold up`, the demo and the tests.

Promises: `start` returns when a real connection was answered (30 s at most), or raises a StackError that says what
happened and what to do; starting again is harmless; data survive stop, crash and restart; nothing listens beyond
this machine; on Linux nothing outlives the process that started it.
"""

from console.embedded.child import Child, StackError, free_port
from console.embedded.mail import MailCatcher
from console.embedded.postgres import Postgres
from console.embedded.valkey import Valkey

__all__ = ["Child", "MailCatcher", "Postgres", "StackError", "Valkey", "free_port"]
