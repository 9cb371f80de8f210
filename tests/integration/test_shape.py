"""What a step and a sweep cost, by counting and by the plans, never by the clock; and who may do what to the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from console.embedded import Postgres
from console.migrate import ROOT, downgrade, migrate
from tests.agents.notes.tools import KeepNote
from tests.agents.refunds.tools import Pay
from tests.fakes.http_service import FakeService
from tests.hands import change, once, owner
from tests.harness import Fleet, fleet
from tests.stack import Database, fresh
from twelvefold import Budget, Done, Read, Task, Text, Write
from twelvefold.canonical import canonical
from twelvefold.record import event_hash
from twelvefold.tool import Tool
from workers.store import alive, quick, sweeps


def plain(url: str) -> str:
    """The URL as the driver reads it."""
    return url.replace("+psycopg", "")


@contextmanager
def statements(f: Fleet) -> Iterator[list[str]]:
    """What is executed on the fleet's connections, in order."""
    said: list[str] = []
    original, command, numbered = psycopg.Cursor._execute_gen, psycopg.Connection._exec_command, quick._numbered

    def note(inner: Any) -> Any:
        def execute(self: Any, query: Any, *args: Any, **names: Any) -> Any:
            said.append(" ".join((query if isinstance(query, str) else bytes(query).decode()).split()))
            return inner(self, query, *args, **names)

        return execute

    def hot(sql: str) -> tuple[bytes, tuple[str, ...]]:
        said.append(" ".join(sql.split()))
        return numbered(sql)

    # cursors inherit the first, BEGIN and COMMIT go the second way, hot statements the third
    base = next(c for c in psycopg.Cursor.__mro__ if "_execute_gen" in vars(c))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_execute_gen", note(original))
        patch.setattr(psycopg.Connection, "_exec_command", note(command))
        patch.setattr(quick, "_numbered", hot)
        yield said


def test_a_model_step_is_a_claim_a_window_and_a_commit(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        f.step(task)
        f.step(task)
        with statements(f) as said:
            assert f.step(task) == "done"
        # an ending looks after the approvals too, so its commit is a transaction; the script reads what opened the run
        assert [s.split()[0] for s in said if not s.startswith("SELECT data::text")] == [
            "UPDATE", "SELECT", "BEGIN", "WITH", "UPDATE", "COMMIT",
        ]  # fmt: skip


def test_a_step_that_only_decides_commits_with_one_statement(fresh_database: Any) -> None:
    class Look(Read[int]):
        """Look. Use in tests."""

        def run(self, ctx: Any) -> int:
            """Nothing."""
            return 1

    with fleet(fresh_database, once(Look())) as f:
        change(f, "notes", tools=[Look])
        task = f.open()
        with statements(f) as said:
            f.step(task)
        assert [s.split(" ")[0] + " " + s.split(" ")[1] for s in said] == [
            "UPDATE agent_tasks", "SELECT id,", "SELECT seq,", "WITH t",
        ]  # fmt: skip
        with statements(f) as said:
            f.step(task)
        assert [s.split(" ")[0] for s in said] == ["UPDATE", "WITH"], "a Read: claim and commit"


def test_a_write_is_one_transaction_and_an_effect_one_more(fresh_database: Any) -> None:
    with FakeService() as service, fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        f.step(task)
        with statements(f) as said:
            f.step(task)
        assert said.count("COMMIT") == said.count("BEGIN") == 1
        port = int(service.address.rpartition(":")[2])
        far = Fleet(fresh_database.app, once(Pay(port=port, order_id="o", amount=Decimal(10))))
        task = far.open("refunds")
        far.step(task)
        with statements(far) as said:
            far.step(task)
        assert said.count("COMMIT") == 2, "Begin, and the commit with what was recorded"
        far.close()


def test_a_sweep_reads_few_rows_however_many_tasks_wait(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        owner(f, "INSERT INTO agent_tasks (id, tenant, agent, agent_version, status, waiting_for, state, state_version,"
                 " due_at, wait_key) SELECT gen_random_uuid(), 't' || n % 7, 'notes', '', 'waiting', 'timer',"
                 " '{}', 1, clock_timestamp() + interval '1 day', 'k' || n FROM generate_series(1, 10000) n;"
                 " INSERT INTO arrivals (tenant, source, key, kind, task_id, state, absorbed_seq)"
                 " SELECT tenant, 's', id::text, 'message', id, 'accepted', 1 FROM agent_tasks",
              fresh_database.owner)  # fmt: skip
        for analyzed in (False, True):
            if analyzed:
                owner(f, "VACUUM ANALYZE", fresh_database.owner)
            before = _rows_read(f)
            sweeps.make_due(f.run.db)
            sweeps.set_aside(f.run.db)
            alive.free_dead(f.run.db, 8)
            for lane in ("answers", "steps"):
                sweeps.ring(f.run.db, lane, 100, 5)
            sweeps.letters(f.run.db, 100, 5)
            read = _rows_read(f) - before
            assert read <= 50, f"{read} rows read, with statistics: {analyzed}"


def _rows_read(f: Fleet) -> int:
    with f.run.db.connection() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
    f.run.db.close()
    return int(
        f.one(
            "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
            " WHERE relname IN ('agent_tasks', 'arrivals', 'outbox', 'approvals', 'workers_alive')"
        )
    )


def test_steps_update_the_task_row_in_place(fresh_database: Any) -> None:
    class Look(Read[int]):
        """Look. Use in tests."""

        n: int

        def run(self, ctx: Any) -> int:
            """Nothing."""
            return self.n

    def script(task: Task) -> Tool[Any]:
        return Look(n=task.count(Look)) if task.count(Look) < 12 else Done(outcome=Text(text="x"))

    with fleet(fresh_database, script) as f:
        change(f, "notes", tools=[Look])
        steps = 0
        while steps < 500:
            task = f.open()
            while f.step(task) != "nothing":
                steps += 1
        f.run.db.close()
        row = f.run.db.rows("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'agent_tasks'")[0]
        assert row["n_tup_upd"] >= 2 * steps
        share = row["n_tup_hot_upd"] / row["n_tup_upd"]
        assert share >= 0.95, f"{share:.3f} of {row['n_tup_upd']}"


SIZE = 20_000


class Gather(Read[str]):
    """Gather much. Use in tests."""

    n: int

    def run(self, ctx: Any) -> str:
        """Much."""
        return "x" * SIZE


@pytest.mark.parametrize(
    "steps", [pytest.param(120, id="120"), pytest.param(2_000, id="2000", marks=[pytest.mark.long])]
)
def test_b61_a_long_task_writes_as_much_in_its_last_step_as_in_its_first(fresh_database: Any, steps: int) -> None:
    with fleet(fresh_database, once(Gather(n=0))) as f:
        change(
            f, "notes", tools=[Gather], budget=Budget(decisions=100), steer=lambda task: Gather(n=task.count(Gather))
        )
        task, bytes_of = f.open(), []
        for n in range(steps):
            if n % 60 == 59:
                f.operate.raise_budget(task, by="ann", decisions=90)
            before = f.one("SELECT pg_current_wal_insert_lsn()::text")
            assert f.step(task) in ("ready", "waiting")
            bytes_of.append(f.one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %(b)s::pg_lsn)", b=before))
        first, last = sorted(bytes_of[10:50])[20], sorted(bytes_of[-40:])[20]
        assert last <= first * Decimal("1.5"), f"{first} bytes of WAL in an early step, {last} in a late one"
        largest = f.one("SELECT max(pg_column_size(t.*)) FROM agent_tasks t")
        assert largest < 16_384, "the state is bounded"
        assert f.one("SELECT max(pg_column_size(e.*)) FROM agent_events e") < 65_536


class Amounts(Write[dict[str, Any]]):
    """Give back numbers and keys in an awkward order. Use in tests."""

    b: Decimal
    a: int

    def write(self, db: Any) -> dict[str, Any]:
        """As they came."""
        return {"z": str(self.b), "a": self.a, "é": "é"}


def test_b60_what_was_hashed_is_what_is_read_back(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Amounts(b=Decimal("1.00"), a=2))) as f:
        change(f, "notes", tools=[Amounts])
        task = f.open()
        assert f.drain(task) == "done"
        rows = f.run.db.rows("SELECT type, data::text AS data, salt, hash FROM agent_events ORDER BY seq")
        for row in rows:
            assert event_hash(row["salt"], row["data"]) == row["hash"]
            assert canonical(json.loads(row["data"])) == row["data"], "canonical as stored"
        decided = json.loads(next(row["data"] for row in rows if row["type"] == "Decided"))
        assert json.loads(decided["args"]) == {"a": 2, "b": "1.00"}
        call = f.state(task)
        assert call.tally("amounts").last == canonical({"z": "1.00", "a": 2, "é": "é"})


@pytest.mark.parametrize(
    "sql",
    ["UPDATE agent_events SET data = '{}'", "DELETE FROM agent_events", "TRUNCATE agent_events",
     "DELETE FROM agent_tasks", "DELETE FROM arrivals", "DROP TABLE outbox"],
)  # fmt: skip
def test_the_application_may_not_rewrite_history(fresh_database: Any, sql: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        f.drain(f.open())
        with (
            psycopg.connect(plain(fresh_database.app)) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(sql)


EVERYTHING = (
    "agent_tasks", "agent_events", "arrivals", "outbox", "approvals", "votes", "grants", "switches", "workers_alive",
    "sweeps",
)  # fmt: skip


def test_the_reader_reads_everything_and_changes_nothing(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        f.drain(task)
        with psycopg.connect(plain(fresh_database.reader), autocommit=True) as connection:
            for table in (
                "agent_tasks",
                "agent_events",
                "arrivals",
                "outbox",
                "approvals",
                "switches",
                "workers_alive",
            ):
                connection.execute(f"SELECT * FROM {table}")
                for sql in (f"DELETE FROM {table}", f"INSERT INTO {table} DEFAULT VALUES"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(sql)
            found = connection.execute(
                "SELECT id::text, status, current_step, events_json FROM agent_threads"
            ).fetchone()
        assert found is not None
        assert found[:3] == (task, "done", 3)
        assert [e["seq"] for e in found[3]] == list(range(1, 8))
        assert [e["type"] for e in found[3]] == f.kinds(task)


@pytest.fixture
def empty(postgres: Postgres) -> Iterator[Database]:
    """A database without any table."""
    with fresh(postgres, "template1") as database:
        yield database


def _tables(url: str) -> set[str]:
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        return {row[0] for row in found.fetchall()}


def test_two_migrations_at_once_make_one_schema(empty: Database) -> None:
    code = f"from console.migrate import migrate; migrate({empty.owner!r})"
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(2)]
    assert [(process.communicate(timeout=60)[1][-300:], process.returncode) for process in both] == [(b"", 0)] * 2
    assert {"agent_tasks", "agent_events", "agent_threads"} <= _tables(empty.owner)


def test_the_schema_goes_up_down_and_up_again(empty: Database) -> None:
    migrate(empty.owner)
    up = _tables(empty.owner)
    downgrade(empty.owner)
    assert _tables(empty.owner) <= {"alembic_version", "alembic_version_pkc"}
    migrate(empty.owner)
    assert _tables(empty.owner) == up
    with fleet(empty, once(KeepNote(text="kept"))) as f:
        assert f.drain(f.open()) == "done"
