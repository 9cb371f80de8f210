"""The command line. Every verb is a few lines over the services that the web applications use too.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 quarantined or corrupt.
"""

from . import act, doctor, grants, lifecycle, local, look, memory, outbox, run, schedules, serve, switches, tokens
from .app import cli, main

__all__ = [
    "act", "cli", "doctor", "grants", "lifecycle", "local", "look", "main", "memory", "outbox", "run", "schedules",
    "serve",
    "switches",
    "tokens",
]  # fmt: skip
