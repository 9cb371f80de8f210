"""Prefetch: what an agent wants looked up before a run's first decision, all of it side by side.

A look that fails or takes too long is told to the model by name; it never stands in the way of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from time import monotonic
from typing import Any

from pydantic import TypeAdapter

from twelvefold.canonical import plain
from twelvefold.errors import DeadlinePassed, ToolError
from twelvefold.events import Prefetched
from twelvefold.text import clean_json, shorten
from twelvefold.tool import Ctx

from .chances import cause
from .telemetry import kind_of
from .work import Runtime, Work, context

LOOK_S = 5.0
"""So long a look may take."""
ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def prefetch(work: Work, run: Runtime) -> Prefetched:
    """What every look came to, in the order of the declaration."""
    begun, at, looks = monotonic(), work.now(), work.agent.prefetch
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def look_up(look: Callable[[Ctx], Any]) -> None:
        try:
            value = look(context(work, run, "", LOOK_S))
            found[look.__name__] = clean_json(plain(ANYTHING.dump_python(value, mode="json")))
        except (Exception, DeadlinePassed) as error:
            run.log.warning("prefetch_failed", task=work.held.id, look=look.__name__, error=kind_of(cause(error)))
            failed[look.__name__] = shorten(str(error), 300) if isinstance(error, ToolError) else type(error).__name__

    threads = [Thread(target=look_up, args=(look,), name=look.__name__, daemon=True) for look in looks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, begun + LOOK_S - monotonic()))
    in_time, late = dict(found), f"took longer than {LOOK_S:g} s"
    names = [look.__name__ for look in looks]
    return Prefetched(
        at=at,
        found={name: in_time[name] for name in names if name in in_time},
        failed={name: failed.get(name, late) for name in names if name not in in_time},
        ms=int((monotonic() - begun) * 1000),
    )
