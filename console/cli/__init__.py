"""The command line. Every verb is a few lines over the services that the web applications use too.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 quarantined or corrupt, 5 not as it was.
"""

from . import (
    act,
    doctor,
    evals,
    grants,
    lifecycle,
    local,
    look,
    memory,
    outbox,
    receipts,
    run,
    schedules,
    sent,
    serve,
    switches,
    tokens,
)
from .app import cli, main

__all__ = [
    "act", "cli", "doctor", "evals", "grants", "lifecycle", "local", "look", "main", "memory", "outbox", "receipts",
    "run", "schedules", "sent", "serve", "switches", "tokens",
]  # fmt: skip
