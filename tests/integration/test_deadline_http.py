"""The HTTP transport under the model client: one deadline over everything, connections kept and let go."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.fakes import openai_server as say
from tests.fakes.loopback import until_true
from workers.deadline_http import DeadlineTransport, until

QUESTION = {"model": "m"}


@pytest.fixture
def fake() -> Iterator[say.FakeOpenAI]:
    with say.FakeOpenAI() as server:
        server.script(say.content("yes"))
        yield server


def client(keep_alive: float = 5.0) -> httpx2.Client:
    return httpx2.Client(transport=DeadlineTransport(keep_alive=keep_alive), timeout=10)


def ask(http: httpx2.Client, fake: say.FakeOpenAI) -> int:
    return http.post(f"{fake.base_url}/chat/completions", json=QUESTION).status_code


def test_without_a_deadline_the_clients_own_timeouts_hold(fake: say.FakeOpenAI) -> None:
    with client() as http:
        assert ask(http, fake) == 200


def test_nothing_begins_when_the_time_is_over(fake: say.FakeOpenAI) -> None:
    with client() as http, until(0.0), pytest.raises(httpx2.ConnectTimeout):
        ask(http, fake)
    assert fake.connections == 0


def test_a_kept_connection_has_no_more_time_than_a_new_one(fake: say.FakeOpenAI) -> None:
    with client() as http:
        ask(http, fake)
        with until(0.0), pytest.raises(httpx2.TimeoutException):
            ask(http, fake)
        assert ask(http, fake) == 200, "the deadline ended with its block"


def test_of_nested_deadlines_the_earlier_holds(fake: say.FakeOpenAI) -> None:
    fake.hold()
    began = time.monotonic()
    with client() as http, until(0.2), until(60.0), pytest.raises(httpx2.ReadTimeout):
        ask(http, fake)
    assert time.monotonic() - began < 5.0


def test_a_deadline_is_of_its_thread_alone(fake: say.FakeOpenAI) -> None:
    seen: list[int] = []
    with client() as http, until(0.0):
        thread = threading.Thread(target=lambda: seen.append(ask(http, fake)))
        thread.start()
        thread.join()
    assert seen == [200]


def test_a_server_that_never_answers_the_tls_greeting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, client() as http:
        with until(0.2), pytest.raises(httpx2.ConnectTimeout):
            http.get(f"https://127.0.0.1:{mute.getsockname()[1]}/")
        peer, _ = mute.accept()
        with peer:
            peer.settimeout(5)
            while peer.recv(4096):  # the greeting, and then the end: our side has let go of the socket
                continue


def test_a_connection_is_used_again_and_the_youngest_first(fake: say.FakeOpenAI) -> None:
    with client() as http:
        for _ in range(5):
            ask(http, fake)
        assert fake.connections == 1


def test_idle_connections_beyond_their_time_are_closed(fake: say.FakeOpenAI) -> None:
    with client(keep_alive=0.0) as http:
        for _ in range(3):
            ask(http, fake)
        assert fake.connections == 3
        until_true(lambda: fake.open_connections == 0)


def test_a_body_left_unread_ends_its_connection(fake: say.FakeOpenAI) -> None:
    fake.script(say.Answer(fault="slow_body"))
    with client() as http:
        with http.stream("POST", f"{fake.base_url}/chat/completions", json=QUESTION) as response:
            assert response.status_code == 200
        fake.script(say.content("yes"))
        assert ask(http, fake) == 200
        assert fake.connections == 2


def test_closing_lets_go_of_idle_connections(fake: say.FakeOpenAI) -> None:
    with client() as http:
        ask(http, fake)
        assert fake.open_connections == 1
    until_true(lambda: fake.open_connections == 0)


def test_a_proxy_of_the_environment_is_used(fake: say.FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", fake.address.replace("//", "//user:word@"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with client() as http:
        http.post("http://model.invalid/v1/chat/completions", json=QUESTION)
        ask(http, fake)
    through, direct = fake.requests
    assert through.path == "http://model.invalid/v1/chat/completions"
    assert through.headers["proxy-authorization"].startswith("Basic ")
    assert direct.path == "/v1/chat/completions"
    assert "proxy-authorization" not in direct.headers


def test_a_proxy_that_refuses_a_tunnel_is_a_failed_connection(
    fake: say.FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", fake.address)
    with client() as http, pytest.raises(httpx2.ProxyError):
        http.get("https://model.invalid/")
