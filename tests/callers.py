"""Callers of the control API, for tests: the application on a fleet's database, and a token for each kind of person."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from console import api
from console.edge import Edge, edge
from tests.hands import beside
from tests.harness import Fleet
from workers.store import tokens
from workers.store.tokens import Role


@dataclass
class Callers:
    """Who calls. Each principal and set of roles gets one token, made when it is first needed."""

    client: TestClient
    held: Edge
    made: dict[Any, str] = field(default_factory=dict)

    def token(self, *roles: Role, by: str = "ann@example.org", tenant: str = "t1", agents: Any = None) -> str:
        """The secret of a token."""
        wanted = (roles, by, tenant, str(agents))
        if wanted not in self.made:
            _, secret = tokens.add(self.held.db, tenant=tenant, principal=by, roles=roles, agents=agents)
            self.made[wanted] = secret
        return self.made[wanted]

    def get(self, path: str, *roles: Role, **who: Any) -> Any:
        """GET as somebody with these roles, default a reader."""
        return self.client.get(path, headers=self.bearer(*(roles or ("reader",)), **who))

    def post(
        self, path: str, body: Any, *roles: Role, key: str | None = None, headers: Any = None, **who: Any
    ) -> Any:  # fmt: skip
        """POST as somebody with these roles, default all that a person at work has."""
        given = self.bearer(*(roles or ("requester", "approver")), **who) | (headers or {})
        if key is not None:
            given["Idempotency-Key"] = key
        if isinstance(body, bytes):
            return self.client.post(path, content=body, headers={"Content-Type": "application/json", **given})
        return self.client.post(path, json=body, headers=given)

    def bearer(self, *roles: Role, **who: Any) -> dict[str, str]:
        """The header of a token."""
        return {"Authorization": f"Bearer {self.token(*roles, **who)}"}


@contextmanager
def callers(f: Fleet) -> Iterator[Callers]:
    """The API on the fleet's database, with the fleet's agents as they are now."""
    held = edge(f.settings)
    held = replace(held, agents=f.run.registry, intake=f.intake, operate=f.operate)
    try:
        with TestClient(Starlette(routes=api.routes(held))) as client:
            yield Callers(client, held)
    finally:
        held.close()


@contextmanager
def stepping(f: Fleet, first: Callable[[str], Any] = str) -> Iterator[None]:
    """Whatever is ready is stepped, as a worker would; `first` is done to each task before."""
    over = threading.Event()

    def steps() -> None:
        while not over.wait(0.01):
            for row in f.run.db.rows("SELECT id::text FROM agent_tasks WHERE status = 'ready'"):
                first(row["id"])
                f.drain(row["id"])

    with beside(steps) as results:
        try:
            yield
        finally:
            over.set()
    assert results == [None], "stepping failed"


def dump(f: Fleet) -> dict[str, list[str]]:
    """Every row of every table as text."""
    tables = f.run.db.rows(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
    )
    return {table["name"]: [row["text"] for row in f.run.db.rows(_all(table["name"]))] for table in tables}


def _all(table: str) -> Any:
    return f"SELECT t::text AS text FROM {table} t ORDER BY 1"
