"""The proxy of the tests passes everything on, and does exactly the harm that it is told to do."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import psycopg
import pytest
import redis
import sqlalchemy as sa

from console.embedded import Postgres, Valkey, free_port
from tests.proxy import Proxy
from tests.stack import Database


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while chunk := self.request.recv(65536):
            self.request.sendall(chunk)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy in front of a server that answers with what it got."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Proxy("127.0.0.1", server.server_address[1]) as between:
            yield between
        server.shutdown()
        thread.join()


def dial(proxy: Proxy, timeout: float = 10.0) -> socket.socket:
    """A connection through the proxy."""
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout)


def is_quiet(line: socket.socket) -> bool:
    """Whether nothing comes for a tenth of a second."""
    line.settimeout(0.1)
    try:
        line.recv(1)
    except TimeoutError:
        return True
    finally:
        line.settimeout(10)
    return False


def read(line: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes, or fewer at the end of the connection."""
    found = b""
    while len(found) < count and (chunk := line.recv(count - len(found))):
        found += chunk
    return found


def test_bytes_pass_unchanged(proxy: Proxy) -> None:
    sent = bytes(range(256)) * 20_000
    with dial(proxy) as line:
        writer = threading.Thread(target=line.sendall, args=(sent,))
        writer.start()
        assert read(line, len(sent)) == sent
        writer.join()


def test_the_end_of_one_direction_passes_too(proxy: Proxy) -> None:
    with dial(proxy) as line:
        line.sendall(b"last words")
        line.shutdown(socket.SHUT_WR)
        assert read(line, 100) == b"last words"


def test_cut_ends_all_connections_and_serves_new_ones(proxy: Proxy) -> None:
    with dial(proxy) as one, dial(proxy) as two:
        one.sendall(b"1")
        two.sendall(b"2")
        assert read(one, 1) + read(two, 1) == b"12"
        assert proxy.connections == 2
        proxy.cut()
        assert proxy.connections == 0
        assert read(one, 1) + read(two, 1) == b""
    with dial(proxy) as again:
        again.sendall(b"3")
        assert read(again, 1) == b"3"


def test_a_black_hole_accepts_and_keeps_still_and_gives_back_later(proxy: Proxy) -> None:
    with dial(proxy) as before:
        before.sendall(b"a")
        assert read(before, 1) == b"a"
        proxy.black_hole(True)
        with dial(proxy) as within:
            before.sendall(b"b")
            within.sendall(b"c")
            assert is_quiet(before)
            assert is_quiet(within)
            proxy.black_hole(False)
            assert read(before, 1) + read(within, 1) == b"bc"


def test_a_black_hole_can_be_cut_and_closed(proxy: Proxy) -> None:
    proxy.black_hole(True)
    with dial(proxy) as line:
        line.sendall(b"x")
        while not proxy.connections:
            pass
        proxy.cut()
        assert read(line, 1) == b""


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_held_chunk_waits_for_its_release_and_nothing_else_does(proxy: Proxy, direction: str) -> None:
    rule = proxy.hold_next(b"COMMIT", direction)  # type: ignore[arg-type]
    with dial(proxy) as line, dial(proxy) as other:
        line.sendall(b"BEGIN;")
        assert read(line, 6) == b"BEGIN;"
        line.sendall(b"COMMIT;")
        rule.wait()
        assert is_quiet(line)
        other.sendall(b"COMMIT;")
        assert read(other, 7) == b"COMMIT;"
        rule.release()
        assert read(line, 7) == b"COMMIT;"


def test_a_match_is_found_across_two_chunks_but_not_before_the_rule(proxy: Proxy) -> None:
    with dial(proxy) as line:
        line.sendall(b"COMMIT;")
        assert read(line, 7) == b"COMMIT;"
        rule = proxy.hold_next(b"COMMIT")
        line.sendall(b"COM")
        assert read(line, 3) == b"COM"
        assert not rule.fired
        line.sendall(b"MIT;")
        rule.wait()
        proxy.release()
        assert read(line, 4) == b"MIT;"


def test_a_rule_taken_back_does_nothing(proxy: Proxy) -> None:
    rule = proxy.hold_next(b"x")
    rule.release()
    with dial(proxy) as line:
        line.sendall(b"x")
        assert read(line, 1) == b"x"
    with pytest.raises(AssertionError, match="nothing with b'x' passed to_server"):
        rule.wait(0.01)


def test_a_server_that_is_down_closes_the_connection() -> None:
    with Proxy("127.0.0.1", free_port()) as proxy, dial(proxy) as line:
        assert read(line, 1) == b""


def test_a_commit_whose_answer_is_lost_has_happened(fresh_database: Database, postgres: Postgres) -> None:
    with Proxy(postgres.socket) as proxy:
        engine = sa.create_engine(proxy.url(fresh_database.owner), poolclass=sa.NullPool)
        with engine.begin() as db:
            db.execute(sa.text("CREATE TABLE paid (n int)"))
        rule = proxy.drop_answer_after(b"COMMIT")
        with pytest.raises(sa.exc.OperationalError), engine.begin() as db:
            db.execute(sa.text("INSERT INTO paid VALUES (1)"))
        assert rule.fired
        with engine.connect() as db:
            assert db.scalar(sa.text("SELECT count(*) FROM paid")) == 1


def test_a_commit_cut_while_it_is_held_has_not_happened(fresh_database: Database, postgres: Postgres) -> None:
    direct = sa.create_engine(fresh_database.owner, poolclass=sa.NullPool)
    with direct.begin() as db:
        db.execute(sa.text("CREATE TABLE paid (n int)"))
    with Proxy(postgres.socket) as proxy:
        engine = sa.create_engine(proxy.url(fresh_database.owner), poolclass=sa.NullPool)
        rule = proxy.hold_next(b"COMMIT")

        def pay() -> None:
            with pytest.raises(sa.exc.OperationalError), engine.begin() as db:
                db.execute(sa.text("INSERT INTO paid VALUES (1)"))

        payer = threading.Thread(target=pay)
        payer.start()
        rule.wait()
        proxy.cut()
        payer.join(10)
    with direct.connect() as db:
        assert db.scalar(sa.text("SELECT count(*) FROM paid")) == 0


def test_psycopg_and_redis_go_through_it_with_rewritten_addresses(postgres: Postgres, valkey: Valkey) -> None:
    with Proxy(postgres.socket) as proxy, psycopg.connect(proxy.url(postgres.dsn())) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    with Proxy("127.0.0.1", valkey.port) as proxy, redis.Redis.from_url(proxy.url(valkey.url)) as client:
        assert client.ping()
