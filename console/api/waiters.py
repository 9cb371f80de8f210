"""Requests that wait for a thread to rest: however many there are, one statement every tenth of a second looks for all.

A waiter is a future: it holds no thread and no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool

from workers.store.database import UNAVAILABLE

EVERY_S = 0.1
MOST = 1000


class Waiters:
    """`look` tells which of some tasks rest now; it is called in a thread, never twice at the same time."""

    def __init__(self, look: Callable[[Sequence[str]], set[str]], most: int = MOST) -> None:
        self._look, self._most = look, most
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self.count = 0

    async def rest(self, task_id: str, seconds: float) -> None:
        """Return when the task rests, or after so many seconds; at once when too many wait already."""
        if self.count >= self._most:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, set()).add(future)
        self.count += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._until_nobody_waits())
        try:
            await asyncio.wait({future}, timeout=seconds)
        finally:
            self.count -= 1
            self._forget(task_id, future)

    def _forget(self, task_id: str, future: asyncio.Future[None]) -> None:
        future.cancel()
        together = self._waiting[task_id]
        together.discard(future)
        if not together:
            del self._waiting[task_id]

    async def _until_nobody_waits(self) -> None:
        while self._waiting:
            try:
                found = await run_in_threadpool(self._look, list(self._waiting))
            except UNAVAILABLE:
                found = set()  # who waits is told when the database is back, or when the time is over
            for task_id in found:
                for future in self._waiting.get(task_id, ()):
                    if not future.done():
                        future.set_result(None)
            await asyncio.sleep(EVERY_S)
