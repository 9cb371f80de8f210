"""Webhooks out against a real server: signed as Standard Webhooks has it, retried by its ladder, and never inside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from delivery.webhook import WAITS, Target, WebhookChannel, signature, written
from tests.harness import fleet
from twelvefold import Done, Text
from twelvefold.ports import Letter, NotSent, PerhapsSent
from workers.posting import Posting
from workers.public import NotPublic, is_public, placed
from workers.relay import deliver
from workers.settings import ConfigurationError, load
from workers.store import paces

NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
NEW, OLD = (
    SecretStr("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"),
    SecretStr("whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="),
)
LETTER = Letter("msg_1", "webhook", "shop", "pay: done", "paid\n", NOW, source="# paid\n", data={"type": "run.done"})


class Server(ThreadingHTTPServer):
    """Answers as it is told, and keeps what came."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = [(204, {})]
        self.came: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/hooks"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_POST(self) -> None:
        """Keep it and answer."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.came.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status, headers = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if not status:
            self.connection.close()
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def channel(url: str, **change: Any) -> WebhookChannel:
    target = Target(url=url, inside=True, secrets=(NEW, OLD), **change)
    return WebhookChannel({"shop": target}, Posting(), lambda: NOW)


def test_the_worked_vector_of_standard_webhooks_and_both_keys_during_a_rotation() -> None:
    body = b'{"type":"run.completed","timestamp":"2023-11-14T22:13:20Z","data":{"run_id":"r_1"}}'
    assert signature((OLD, NEW), "msg_1", 1700000000, body) == (
        "v1,MKs976bdPgujQnHZ7OsYING6g4OOv0fUFx1rhpWBSDk= v1,HiJHW89Z/aOXF14lmlVECm72OpMqXZDHBQ81UkcCugk="
    )


def test_a_letter_is_one_signed_post_and_the_same_bytes_each_time() -> None:
    with server() as s:
        out = channel(s.url)
        assert [out.push(LETTER).reference for _ in range(2)] == ["msg_1", "msg_1"]
    (headers, body), again = s.came
    assert again[1] == body == written(LETTER)
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_1", "1700000000")
    assert headers["webhook-signature"] == signature((NEW, OLD), "msg_1", 1700000000, body)
    found = json.loads(body)
    assert (found["type"], found["data"]["text"], found["data"]["markdown"]) == ("run.done", "paid\n", "# paid\n")


@pytest.mark.parametrize(
    ("status", "headers", "retry", "after", "holds"),
    [
        (500, {}, True, None, "letter"), (404, {}, True, None, "letter"),
        (302, {"location": "http://127.0.0.1:1/"}, True, None, "letter"),
        (429, {"retry-after": "30"}, True, 30.0, "destination"),
        (503, {"retry-after": "9999999"}, True, 86400.0, "destination"),
        (429, {"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, True, 60.0, "destination"),
        (503, {"retry-after": "soon"}, True, None, "letter"), (410, {}, False, None, "closed"),
    ],
)  # fmt: skip
def test_what_is_answered_says_whether_and_when_it_is_sent_again(
    status: int, headers: dict[str, str], retry: bool, after: float | None, holds: str
) -> None:
    with server() as s:
        s.answers = [(status, headers)]
        with pytest.raises(NotSent) as refused:
            channel(s.url).push(LETTER)
    assert (refused.value.retry, refused.value.retry_after, refused.value.holds) == (retry, after, holds)
    assert len(s.came) == 1, "no redirect is followed"


def test_a_lost_answer_is_told_apart_from_a_connection_that_was_never_made() -> None:
    with server() as s:
        s.answers = [(0, {})]
        with pytest.raises(PerhapsSent):
            channel(s.url).push(LETTER)
    with pytest.raises(NotSent) as refused:
        channel(s.url).push(LETTER)
    assert refused.value.retry


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1",
     "2002:a00:1::",
     "fe80::1%eth0", "240.0.0.1", "255.255.255.255", "fec0::1", "no address", ""],
)  # fmt: skip
def test_addresses_of_our_own_are_not_public_in_any_disguise(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(NotPublic):
        placed(lambda host, port: ["93.184.215.14", address])("evil.example", 443)


def test_public_addresses_are_and_the_one_that_was_judged_is_the_one_that_is_called() -> None:
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14"):
        assert is_public(address)
    answers = [["93.184.215.14"], ["127.0.0.1"]]  # a name server that answers otherwise the second time
    place = placed(lambda host, port: answers.pop(0))
    assert place("rebinding.example", 443) == "93.184.215.14" and len(answers) == 1
    with pytest.raises(NotPublic):
        place("rebinding.example", 443)


def test_a_target_outside_whose_name_leads_inside_is_never_called() -> None:
    with server() as s:
        url = f"https://evil.example:{s.server_port}/hooks"
        post = Posting(look=lambda host, port: ["127.0.0.1"])
        out = WebhookChannel({"shop": Target(url=url, secrets=(NEW,))}, post, lambda: NOW)
        with pytest.raises(NotSent) as refused:
            out.push(LETTER)
        assert not refused.value.retry and s.came == []
    with pytest.raises(NotSent):
        out.push(Letter("x", "webhook", "http://127.0.0.1/", "", "", NOW))


def test_a_tools_client_refuses_a_declared_name_that_leads_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    from twelvefold.errors import Fatal
    from workers import outside, public

    monkeypatch.setattr(public, "look_up", lambda host, port: ["10.0.0.5"])
    monkeypatch.setattr(outside, "_transport", lambda inside: _Placed() if not inside else httpx2.HTTPTransport())
    with server() as s, outside.client(("erp.example", f"127.0.0.1:{s.server_port}"), {}, 5, lambda: True) as client:
        with pytest.raises(Fatal, match="leads into a private network"):
            client.get("http://erp.example/")
        assert client.post(s.url, content=b"{}").status_code == 204, "an address that the agent names is meant"


class _Placed(httpx2.BaseTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Judge the host as the real one does."""
        from workers import public

        placed(public.look_up)(request.url.host, 80)
        raise AssertionError


def test_targets_come_from_the_settings_and_every_mistake_is_told() -> None:
    env = {"DATABASE_URL": "postgresql://x@y/z", "BROKER_URL": "redis://x"}
    good = '{"shop": {"url": "https://shop.example/hooks"}}'
    found = load({**env, "TWELVEFOLD_WEBHOOK_TARGETS": good, "SHOP_WEBHOOK_OUT_SECRETS": NEW.get_secret_value()})
    assert found.webhook_targets["shop"].url == "https://shop.example/hooks"
    assert NEW.get_secret_value() not in str(found.masked())
    for text, secret, says in (
        (good, "", "SHOP_WEBHOOK_OUT_SECRETS"), (good, "whsec_short", "24 to 64 bytes"),
        ('{"shop": {"url": "http://shop.example"}}', NEW.get_secret_value(), "https address"),
        ('{"shop": {"url": "https://u:p@shop.example"}}', NEW.get_secret_value(), "without a user"),
        ('{"Shop": {"url": "https://shop.example"}}', NEW.get_secret_value(), "lower-case"), ("[]", "", "JSON object"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=says):
            load({**env, "TWELVEFOLD_WEBHOOK_TARGETS": text, "SHOP_WEBHOOK_OUT_SECRETS": secret})


def test_the_ladder_is_climbed_and_410_closes_the_target_until_it_is_opened(fresh_database: Any) -> None:
    assert timedelta(days=2) < timedelta(seconds=sum(WAITS)) < timedelta(days=4)
    with server() as s, fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        task = f.open()
        out = {"webhook": channel(s.url)}
        insert = (
            "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload) VALUES"
            " (gen_random_uuid(), 't1', %s, 1, 'webhook', 'shop', %s, 1, %s, '{}') RETURNING id::text"
        )

        def write(name: str) -> str:
            with f.run.db.connection() as connection:
                row = connection.execute(insert, (task, name, name)).fetchone()
                assert row is not None
                return str(row[0])

        letter = write("a")
        s.answers = [(0, {}), *[(500, {})] * 9, (204, {})]
        for wait in WAITS:
            assert deliver(letter, f.run, out) == "pending"
            left = f.one("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM outbox WHERE id = %(i)s", i=letter)
            assert wait - 30 < left <= wait
            with f.run.db.connection() as connection:
                connection.execute("UPDATE outbox SET due_at = clock_timestamp()")
        assert deliver(letter, f.run, out) == "failed"
        assert {headers["webhook-id"] for headers, _ in s.came} == {letter} and len(s.came) == 10
        s.answers = [(410, {}), (204, {})]
        assert [deliver(write(name), f.run, out) for name in ("b", "c")] == ["failed", "failed"]
        assert len(s.came) == 11, "a closed target is not called"
        assert paces.reopen(f.run.db, "webhook", "shop") and not paces.reopen(f.run.db, "webhook", "shop")
        assert deliver(write("d"), f.run, out) == "sent"
