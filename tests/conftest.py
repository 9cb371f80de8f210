"""What every test gets: an environment without our variables, and the fixtures of `tests/stack.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# First of all: a test must not meet the database, the account or the key of the person who runs it.
_OURS = ("TWELVEFOLD_", "DATABASE_URL", "OWNER_DATABASE_URL", "BROKER_URL", "OPENAI_", "SMTP_", "SLACK_", "PG")
for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]

settings.register_profile("shared", deadline=None)  # two shared cores: the time of one example says nothing
settings.load_profile("shared")

from tests.stack import fresh_database, mail, postgres, template_database, valkey  # noqa: E402

__all__ = ["fresh_database", "log_as_before", "mail", "postgres", "template_database", "valkey"]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A test that starts an application tells the log where to write: to a stream that is closed when it ends."""
    yield
    structlog.reset_defaults()
