"""The doorbell of the web application, rung beside the requests: nobody who is answered waits for the broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from workers.lanes import Lanes
from workers.settings import Settings
from workers.store import alive
from workers.store.database import Database
from workers.store.sweeps import shown

WINDOWS_S = 5.0


class Bell:
    """Rings in a thread of its own. When ringing fails, the sweeper rings."""

    def __init__(self, db: Database, lanes: Lanes, settings: Settings) -> None:
        self._db, self._lanes, self._settings = db, lanes, settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bell")
        self._looked = -WINDOWS_S

    def ring(self, task_id: str, what: str, lane: str = "steps") -> None:
        """Ring soon. `what` is shown to operators: an agent or a source, never content."""
        self._thread.submit(self._ring, task_id, what, lane)

    def _ring(self, task_id: str, what: str, lane: str) -> None:
        if monotonic() - self._looked > WINDOWS_S:
            self._lanes.windows.update(alive.windows(self._db, self._settings.dead_after))
            self._looked = monotonic()
        self._lanes.ring(lane, [(task_id, shown(task_id, what, 0, "arrived"))])

    def close(self) -> None:
        """Ring no more; what was not rung yet is the sweeper's."""
        self._thread.shutdown(cancel_futures=True)
        self._lanes.close()
