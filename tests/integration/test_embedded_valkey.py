"""Valkey from its wheel serves all our clients, and keeps what it promises to keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu.connection
import pytest
import redis

from console.embedded import StackError, Valkey, child
from tests.stack import short_home


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for this test alone."""
    with short_home() as path:
        yield path


def test_valkey_serves_celerys_client_and_wants_its_password(valkey: Valkey) -> None:
    connect: Any = kombu.connection.Connection
    with connect(valkey.url) as connection, connection.SimpleQueue("bell") as queue:
        queue.put({"task": 1})
        message = queue.get(timeout=10)
        message.ack()
        assert message.payload == {"task": 1}
    with (
        redis.Redis.from_url(valkey.url.replace("redis://:", "redis://:not")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_valkey_never_evicts(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_flush_empties_valkey(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("a", 1)
        valkey.flush()
        assert client.dbsize() == 0


@pytest.mark.parametrize(("durable", "found"), [(True, b"1"), (False, None)])
def test_durable_says_whether_valkey_remembers(home: Path, durable: bool, found: bytes | None) -> None:
    with Valkey(home, durable=durable) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("a", 1)
        server.kill()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("a") == found
        url = server.url
        server.restart()
        assert server.url == url
    assert Valkey(home).url == url


def test_a_second_valkey_on_the_same_home_is_refused_kindly(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.1)
    with pytest.raises(StackError, match="Valkey already runs on"):
        Valkey(valkey.home).start()


def test_valkey_takes_another_port_when_its_own_is_taken_at_the_first_start(home: Path, valkey: Valkey) -> None:
    with Valkey(home, durable=False):
        pass
    note = home / "valkey.json"
    taken = valkey.url.rpartition(":")[2].partition("/")[0]
    note.write_text(note.read_text().replace(str(Valkey(home).port), taken))
    with Valkey(home, durable=False) as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        assert str(server.port) != taken
