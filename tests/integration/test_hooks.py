"""Webhooks into the real database: what is taken has one row that says why, what is refused has none at all."""

from __future__ import annotations

import hashlib
import hmac
import json
import lzma
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from agents.deploy.agent import agent as deploy
from console.migrate import ROOT
from console.posted import mails
from console.sources import sources
from console.web import public
from tests.harness import NO_BROKER
from triggers.inbound import mailgun_signature
from triggers.webhook import routes
from twelvefold.bindings import WebhookBinding
from workers import registry
from workers.intake import Intake
from workers.settings import load
from workers.store.database import Database
from workers.telemetry import logger

GITHUB, SHOP = "a secret of this test", "another secret of this test"
EXAMPLES = ROOT / "tests/data/github/examples.json.xz"
DECLARED = """{"shop": {"header": "X-Shop-Signature", "timestamp_header": "X-Shop-Time", "signed": "{timestamp}.{body}",
               "key_pointer": "/id", "type_pointer": "/event"}}"""
Headers = Mapping[str, str]
NONE: Headers = {}
LISTENED = {binding.type for binding in deploy.triggers if isinstance(binding, WebhookBinding)}
TABLES = ("agent_tasks", "agent_events", "arrivals", "outbox", "approvals")


def signed(secret: str, body: bytes) -> str:
    """What a sender computes, without any of our code."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@dataclass
class Hooks:
    """The web routes of the webhooks on a database, and what stands in it."""

    client: TestClient
    db: Database

    def github(self, body: bytes, event: str = "issues", key: str = "d-1", change: Headers = NONE) -> Any:
        """Post as GitHub does."""
        headers = {
            "X-Hub-Signature-256": f"sha256={signed(GITHUB, body)}", "X-GitHub-Event": event,
            "X-GitHub-Delivery": key, "Content-Type": "application/json", **change,
        }  # fmt: skip
        return self.client.post("/hooks/github", content=body, headers=headers)

    def shop(self, body: bytes, age: int = 0, change: Headers = NONE) -> Any:
        """Post as the declared source does, with a clock that is `age` seconds late."""
        stamp = str(int(time.time()) - age)
        signature = signed(SHOP, f"{stamp}.".encode() + body)
        headers = {"X-Shop-Signature": signature, "X-Shop-Time": stamp, "Content-Type": "application/json", **change}
        return self.client.post("/hooks/shop", content=body, headers=headers)

    def stored(self) -> dict[str, int]:
        """How many rows stand in each table."""
        union = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in TABLES)
        return {row["name"]: row["n"] for row in self.db.rows(union)}

    def arrivals(self) -> list[dict[str, Any]]:
        """The rows, oldest first."""
        return self.db.rows("SELECT * FROM arrivals ORDER BY id")


@pytest.fixture
def hooks(fresh_database: Any) -> Iterator[Hooks]:
    settings = load({
        "DATABASE_URL": fresh_database.app, "BROKER_URL": NO_BROKER, "GITHUB_WEBHOOK_SECRETS": GITHUB,
        "TWELVEFOLD_WEBHOOK_SOURCES": DECLARED, "SHOP_WEBHOOK_SECRETS": SHOP,
    })  # fmt: skip
    db = Database(settings.database_url.get_secret_value(), size=4)
    intake = Intake(db, registry.load("agents"), logger(process="test"))
    app = Starlette(routes=routes(sources(settings), intake.accept, lambda: datetime.now(UTC)))
    with TestClient(app) as client:
        yield Hooks(client, db)
    db.close()


def test_every_payload_that_github_sends_is_stored_once_and_routed_or_ignored_with_a_reason(hooks: Hooks) -> None:
    sent: dict[str, tuple[str, Any]] = {}
    for event in json.loads(lzma.decompress(EXAMPLES.read_bytes()), parse_float=Decimal):
        for example in event["examples"]:
            key = f"d-{len(sent)}"
            sent[key] = (event["name"], example)
            body = json.dumps(example, default=str, indent=len(sent) % 3 or None, ensure_ascii=bool(len(sent) % 2))
            answer = hooks.github(body.encode(), event["name"], key)
            assert answer.status_code == 200, answer.text
    assert len(sent) == 329
    rows = hooks.arrivals()
    assert [row["key"] for row in rows] == list(sent)
    for row in rows:
        name, example = sent[row["key"]]
        assert row["type"] == (f"{name}.{example['action']}" if "action" in example else name)
        assert json.loads(row["raw"], parse_float=Decimal) == json.loads(json.dumps(example, default=str))
        assert row["proof"] == "hmac:github#0"
    became = Counter((row["type"] in LISTENED, row["state"], row["reason"]) for row in rows)
    assert became.pop((True, "accepted", None)) == hooks.stored()["agent_tasks"] > 0, "the agent `deploy` takes these"
    assert became.pop((False, "ignored", "no_binding")) > 250
    assert all(state == "ignored" and reason for _, state, reason in became), "what it does not take it says why"


def test_the_largest_body_can_be_set(fresh_database: Any) -> None:
    settings = load({
        "DATABASE_URL": fresh_database.app, "BROKER_URL": NO_BROKER, "GITHUB_WEBHOOK_SECRETS": GITHUB,
        "TWELVEFOLD_WEBHOOK_MAX_BODY": "100",
    })  # fmt: skip
    with TestClient(public(settings)) as client:
        sent = [client.post("/hooks/github", content=b" " * size).status_code for size in (100, 101)]
    assert sent == [401, 413]


def test_a_repeated_delivery_is_answered_alike_and_opens_nothing(hooks: Hooks) -> None:
    body = (ROOT / "tests/data/github/release-published.json").read_bytes()
    first, second, changed = hooks.github(body, "release"), hooks.github(body, "release"), hooks.github(b"{}", "push")
    assert first.json()["outcome"] == "accepted"
    task = first.json()["task_id"]
    for again in (second, changed):
        assert (again.status_code, again.json()) == (200, {"outcome": "duplicate", "reason": "", "task_id": task})
    assert hooks.stored() == {"agent_tasks": 1, "arrivals": 1, "agent_events": 0, "outbox": 0, "approvals": 0}
    assert hooks.arrivals()[0]["raw"] == body, "what came first stands"


def test_a_replay_of_a_stamped_delivery_opens_nothing_inside_the_window_and_is_refused_after_it(hooks: Hooks) -> None:
    body = b'{"id": "o-1", "event": "order.paid"}'
    assert hooks.shop(body, age=10).json()["outcome"] == "ignored"
    assert hooks.shop(body, age=10).json()["outcome"] == "duplicate"
    assert hooks.shop(body, age=299).json()["outcome"] == "duplicate"
    assert hooks.shop(body, age=302).status_code == 401
    assert hooks.stored()["arrivals"] == 1


BIG = b'{"id": "' + b"x" * 10_000_000 + b'"}'
REFUSED: dict[str, tuple[int, str, Callable[[Hooks], Any]]] = {
    "no signature of ours": (401, "not match", lambda h: h.github(b"{}", change={"X-Hub-Signature-256": "sha256=00"})),
    "the signature of other bytes": (401, "not match", lambda h: h.shop(b"{}", change={"X-Shop-Time": "1700000000"})),
    "no signature": (401, "exactly once", lambda h: h.client.post("/hooks/github", content=b"{}")),
    "the old SHA-1 alone": (
        401, "X-Hub-Signature-256",
        lambda h: h.client.post("/hooks/github", content=b"{}", headers={"X-Hub-Signature": "sha1=00"}),
    ),
    "another source's secret": (
        401, "does not match",
        lambda h: h.github(b"{}", change={"X-Hub-Signature-256": f"sha256={signed(SHOP, b'{}')}"}),
    ),
    "a stale timestamp": (401, "old", lambda h: h.shop(b'{"id": "1"}', age=302)),
    "a timestamp of the future": (401, "ahead", lambda h: h.shop(b'{"id": "1"}', age=-302)),
    "no timestamp": (401, "whole Unix seconds", lambda h: h.shop(b'{"id": "1"}', change={"X-Shop-Time": "soon"})),
    "ten megabytes": (413, "5000000 bytes", lambda h: h.shop(BIG)),
    "ten megabytes for nobody": (413, "5000000 bytes", lambda h: h.client.post("/hooks/nobody", content=BIG)),
    "ten megabytes in pieces": (
        413, "5000000 bytes", lambda h: h.client.post("/hooks/shop", content=(b"x" * 100_000 for _ in range(100)))
    ),
    "no JSON": (400, "line 1, column 2", lambda h: h.shop(b"{'id': 1}")),
    "half a JSON": (400, "line 1", lambda h: h.github(b'{"action": "opened"')),
    "no UTF-8": (400, "UTF-8 at byte 8", lambda h: h.shop(b'{"id": "\xff"}')),
    "the same key twice": (400, "same key twice", lambda h: h.shop(b'{"id": "1", "id": "2"}')),
    "no delivery id": (400, "/id", lambda h: h.shop(b'{"event": "order.paid"}')),
    "a delivery id with NUL": (400, "/id", lambda h: h.shop(b'{"id": "a\\u0000b"}')),
    "a delivery id with half a character": (400, "/id", lambda h: h.shop(b'{"id": "a\\ud83d"}')),
    "no event of GitHub": (400, "X-GitHub-Event", lambda h: h.github(b"{}", "")),
    "a list from GitHub": (400, "JSON object", lambda h: h.github(b"[]")),
    "an unknown source": (404, "Check the URL", lambda h: h.client.post("/hooks/nobody", content=b"{}")),
    "a source of our own": (404, "Check the URL", lambda h: h.client.post("/hooks/operate", content=b"{}")),
}  # fmt: skip


def test_what_is_refused_is_told_why_and_stored_nowhere_not_even_in_half(hooks: Hooks) -> None:
    assert len(BIG) > 10_000_000
    for name, (status, says, act) in REFUSED.items():
        answer = act(hooks)
        assert answer.status_code == status, (name, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", name
        assert says in answer.json()["detail"], (name, answer.text)
        assert not any(secret in answer.text for secret in (GITHUB, SHOP)), name
        assert set(hooks.stored().values()) == {0}, name


def test_characters_that_no_column_holds_are_replaced_and_the_bytes_stay_as_they_came(hooks: Hooks) -> None:
    body = b'{"id": "o-1", "event": "or\\u0000der", "note": "a\\ud83db\\u0000c", "k\\udc00": 1}'
    assert hooks.shop(body).status_code == 200
    (row,) = hooks.arrivals()
    assert (row["type"], row["raw"], row["cleaned"]) == ("or\ufffdder", body, 4)
    assert row["payload"] is None, "nobody listens to it, so only the bytes are kept"


def test_a_mail_that_a_provider_posts_is_stored_once_and_its_proof_may_not_carry_another(hooks: Hooks) -> None:
    settings = load({
        "DATABASE_URL": "postgresql://x@localhost/x", "BROKER_URL": NO_BROKER, "MAILGUN_WEBHOOK_SECRETS": SHOP,
        "TWELVEFOLD_WEBHOOK_SOURCES": '{"mailgun": {"scheme": "mailgun"}}',
    })  # fmt: skip
    intake = Intake(hooks.db, registry.load("agents"), logger(process="test"))
    known, take = sources(settings), mails(intake, settings, lambda *_: None)
    app = Starlette(routes=routes(known, intake.accept, lambda: datetime.now(UTC), mail=take))

    def post(mail: str, token: str) -> tuple[int, str, str]:
        stamp = str(int(time.time()))
        signature = mailgun_signature(SHOP, stamp, token)
        form = {"recipient": "desk@in.example", "timestamp": stamp, "token": token, "signature": signature}
        answer = client.post("/hooks/mailgun", data={**form, "body-mime": mail})
        return answer.status_code, answer.json()["outcome"], answer.json()["reason"]

    first = "From: ann@shop.example\nMessage-ID: <m1@shop.example>\n\nPlease send pears."
    with TestClient(app) as client:
        assert post(first, "t1") == (200, "ignored", "no_binding")
        assert post(first, "t2") == (200, "duplicate", ""), "it is known by its own id"
        assert post(first.replace("m1", "m2").replace("pears", "money"), "t1") == (200, "duplicate", "")
        auto = first.replace("m1", "m3").replace("\n\n", "\nAuto-Submitted: auto-replied\n\n")
        assert post(auto, "t3")[1] == "ignored"
        huge = "From: a@x.example\nContent-Type: multipart/mixed; boundary=b\n\n" + "--b\n\nx\n" * 5000
        answer = client.post("/hooks/mailgun", data={"recipient": "d@in.example", "timestamp": str(int(time.time()))})
        assert answer.status_code == 406
        with pytest.raises(KeyError):
            post(huge, "t4")
    rows = [(row["reason"], row["proof"], row["sender"]) for row in hooks.arrivals() if row["reason"] != "used"]
    assert rows[0] == ("no_binding", "none", "ann@shop.example"), "the provider is proved, and not who wrote"
    assert [reason for reason, *_ in rows] == ["no_binding", "auto_submitted"]


def test_with_the_database_away_the_sender_is_asked_to_come_again(hooks: Hooks, postgres: Any) -> None:
    body = b'{"id": "o-1"}'
    postgres.stop()
    try:
        answer = hooks.shop(body)
    finally:
        postgres.start()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert hooks.stored()["arrivals"] == 0
    assert hooks.shop(body).status_code == 200
    assert hooks.stored()["arrivals"] == 1
