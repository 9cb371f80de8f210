"""The file by which a probe sees that a worker lives: touched whatever becomes of the database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.hands import until
from tests.harness import fleet
from twelvefold import Done, Text
from workers.heart import Heart
from workers.store import alive


def test_a_worker_that_has_lost_its_database_still_lives(
    fresh_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "live"

    def lost(*_: Any) -> bool:
        raise psycopg.OperationalError("gone")

    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), live_file=file, heartbeat=0.02) as f:
        heart = Heart(replace(f.run), {"steps": 1}, 1, on_silence=lambda: None)
        heart.start()
        try:
            until(file.exists, "a first touch")
            monkeypatch.setattr(alive, "beat", lost)
            file.unlink()
            until(file.exists, "a touch without a database")
        finally:
            heart.stop()
        file.unlink()
    assert not file.exists(), "what has stopped touches nothing"
