"""Texts by hash: what requests to a model were made of. The commit of the step that asked writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .database import Database

SHARED = """,
sh AS (INSERT INTO texts (hash, text, source, commit)
       SELECT x.hash, x.text, x.source, x.commit FROM t, json_to_recordset(%(shared_json)s) AS x
              (hash text, text text, source text, commit text)
       ON CONFLICT (hash) DO NOTHING)"""
RENDERED = """,
re AS (INSERT INTO renderings (task_id, hash, seq, text)
       SELECT t.id, x.hash, x.seq, x.text FROM t, json_to_recordset(%(rendered_json)s) AS x
              (hash text, seq int, text text)
       ON CONFLICT (task_id, hash) DO NOTHING)"""
"""Parts of the commit's statement; `t` is the task's row."""


def of_request(db: Database, task_id: str, hashes: Sequence[str]) -> dict[str, str]:
    """The texts that are still there, by hash."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT hash, text FROM texts WHERE hash = ANY(%(hashes)s)"
            " UNION SELECT hash, text FROM renderings WHERE task_id = %(id)s AND hash = ANY(%(hashes)s)",
            {"id": task_id, "hashes": list(hashes)},
        ).fetchall()
    return {name: text for name, text in found}


def sources(db: Database, hashes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Of each shared text that was a prompt file: (file, commit of the tree it was first used in)."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT hash, source, commit FROM texts WHERE hash = ANY(%s) AND source <> ''", (list(hashes),)
        ).fetchall()
    return {name: (source, commit) for name, source, commit in found}


def asked(db: Database, task_id: str, seq: int) -> tuple[int, Any] | None:
    """The request that event `seq` is, or that it answers: the newest ModelAsked up to it, as (seq, data)."""
    with db.connection() as connection:
        return connection.execute(
            "SELECT seq, data FROM agent_events WHERE task_id = %s AND seq <= %s AND type = 'ModelAsked'"
            " ORDER BY seq DESC LIMIT 1",
            (task_id, seq),
        ).fetchone()


def replies(db: Database, task_id: str) -> dict[str, str]:
    """The raw replies to a task's requests, by the hash of each request."""
    with db.connection() as connection:
        found = connection.execute(
            "SELECT data FROM agent_events WHERE task_id = %s AND type = 'ModelAsked' ORDER BY seq", (task_id,)
        ).fetchall()
    return {data["request"]: data["raw"] for (data,) in found if data.get("raw")}
