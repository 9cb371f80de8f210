"""Failures of other systems' webhooks that are public: each with the delivery that made it happen there."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.fakes.slack_workspace import SECRET as SLACK
from tests.hands import change, once
from tests.harness import Fleet, fleet
from triggers.adapter import Received
from triggers.proofs import Signed
from triggers.schemes import SLACK as SCHEME
from triggers.signature import Scheme
from triggers.slack import clicks
from triggers.source import Pointed, generic
from triggers.webhook import routes
from twelvefold import Message, NothingToDo, on
from workers import intake

SECRET = "a secret of this test"
NAMES = Pointed(key_pointer="/id", default_type="parcel")


@contextmanager
def parcels(f: Fleet) -> Iterator[Any]:
    """A sender of parcels to this fleet: `send(body, signed=…)`."""
    sources = {"parcels": generic("t1", (SECRET,), Scheme(header="X-Signature"), NAMES)}
    app = Starlette(routes=routes(sources, lambda said: f.intake.accept(said), lambda: datetime.now(UTC)))

    def send(body: bytes, signed: bytes | None = None) -> Any:
        digest = hmac.new(SECRET.encode(), body if signed is None else signed, hashlib.sha256).hexdigest()
        return client.post("/hooks/parcels", content=body, headers={"X-Signature": digest})

    with TestClient(app) as client:
        yield send


def count(f: Fleet, table: str) -> int:
    return int(f.one(f"SELECT count(*) FROM {table}"))


def test_b104_a_delivery_that_comes_fifty_times_at_once_is_one_task_and_each_is_acknowledged(
    fresh_database: Any,
) -> None:
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f, parcels(f) as send:
        with ThreadPoolExecutor(25) as threads:
            answers = [each.result() for each in [threads.submit(send, b'{"id":"1","number":7}') for _ in range(50)]]
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(answer.json()["outcome"] for answer in answers) == ["accepted"] + ["duplicate"] * 49
        assert len({answer.json()["task_id"] for answer in answers}) == 1
        assert (count(f, "agent_tasks"), count(f, "arrivals")) == (1, 1)


def test_b105_a_delivery_whose_task_could_not_be_made_is_not_remembered_and_one_that_was_made_is_for_good(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"id":"1","number":7}'
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f, parcels(f) as send:
        whole = intake.NEW_TASK
        monkeypatch.setattr(intake, "NEW_TASK", "SELECT 1 / 0")
        assert send(body).status_code == 503
        assert (count(f, "agent_tasks"), count(f, "arrivals")) == (0, 0)
        monkeypatch.setattr(intake, "NEW_TASK", whole)
        assert send(body).json()["outcome"] == "accepted"
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f, parcels(f) as send:
        assert send(body).json()["outcome"] == "duplicate", "a process that has just begun knows it too"
        assert count(f, "agent_tasks") == 1


def test_b108_what_is_verified_are_the_bytes_and_never_what_they_mean(fresh_database: Any) -> None:
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f, parcels(f) as send:
        body = b'{"number":1,  "id":"\\u00e9"}'
        for other in (json.dumps(json.loads(body)).encode(), json.dumps(json.loads(body), ensure_ascii=False).encode(),
                      body.replace(b"  ", b" "), body + b"\n", b""):  # fmt: skip
            assert send(other, signed=body).status_code == 401
        assert count(f, "arrivals") == 0
        assert send(body).json()["outcome"] == "accepted"
    payload = json.dumps({"type": "block_actions", "text": "a*b+c ü & %2B", "user": {"id": "U1"}})
    for form in (f"payload={quote_plus(payload)}", f"payload={quote_plus(payload).replace('%2A', '*')}"):
        stamp = str(int(datetime.now(UTC).timestamp()))
        digest = hmac.new(SLACK.encode(), f"v0:{stamp}:{form}".encode(), hashlib.sha256).hexdigest()
        headers = (("x-slack-signature", f"v0={digest}"), ("x-slack-request-timestamp", stamp))
        received = Received("slack", form.encode(), headers, datetime.now(UTC))
        assert Signed("slack", (SLACK,), (SCHEME,)).verify(received) == "hmac:slack#0"
        assert list(clicks(received)) == []


def test_b116_a_storm_of_alerts_about_one_thing_is_one_task_and_each_alert_stands_in_it(fresh_database: Any) -> None:
    with fleet(fresh_database, once(NothingToDo(reason="seen"))) as f:
        alerts = on.webhook("parcels", type="parcel", read=lambda said: Message(text=f"disk full {said['number']}"))
        change(f, "desk", triggers=[alerts], about=lambda _: "disk-1", one_open_per_entity=True)
        with parcels(f) as send, ThreadPoolExecutor(16) as threads:
            sent = [threads.submit(send, json.dumps({"id": str(n), "number": n}).encode()) for n in range(100)]
            answers = [each.result().json() for each in sent]
        assert {answer["outcome"] for answer in answers} == {"accepted"}
        assert [answer["reason"] for answer in answers].count("joined") == 99
        assert len({answer["task_id"] for answer in answers}) == 1
        assert (count(f, "agent_tasks"), count(f, "arrivals")) == (1, 100)
        assert f.drain(answers[0]["task_id"]) == "done"
        assert f.one("SELECT count(*) FROM arrivals WHERE absorbed_seq IS NULL") == 0
