"""Structured logs as JSON lines on standard error: ids, names and durations, never the content of a task."""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import structlog


class Log(Protocol):
    """What the shell needs of a logger: an event name in past tense and plain fields."""

    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


def configure(level: int = logging.INFO) -> None:
    """Write JSON lines to standard error, for our own log and for the libraries'."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, stamp,
                    structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )  # fmt: skip
    quiet = max(level, logging.WARNING)
    logging.basicConfig(level=quiet, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def logger(**bound: Any) -> Log:
    """A logger with fields bound to it."""
    found: Log = structlog.get_logger(**bound)
    return found


def kind_of(error: BaseException) -> str:
    """An exception as it may stand in a log or an event: its type, never its text, which may carry content."""
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
