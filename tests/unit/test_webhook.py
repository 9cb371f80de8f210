"""The webhook endpoint: every way to be refused, one call of `accept` for every delivery that is not."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from triggers import source as made
from triggers.adapter import Source
from triggers.envelope import Accept, Arrived, Verdict
from triggers.schemes import GITHUB
from triggers.signature import Scheme, sign
from triggers.source import Pointed, at
from triggers.webhook import routes
from twelvefold.errors import DeclarationError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = "gh-secret-1"
SHIPPED = Path(__file__).parents[1] / "data" / "github"
STAMPED = Scheme(header="X-Signature", timestamp_header="X-Timestamp", signed="{timestamp}.{body}")
PLAIN = Scheme(header="X-Signature")


@dataclass
class Intake:
    """Stands for the intake: one row for each (source, key), whoever comes first."""

    arrived: list[Arrived] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, arrived: Arrived) -> Verdict:
        with self.lock:
            if (arrived.source, arrived.key) in self.seen:
                return Verdict("duplicate", "seen before", "task-1")
            self.seen.add((arrived.source, arrived.key))
            self.arrived.append(arrived)
        return Verdict("accepted", "", "task-1")


def application(accept: Accept, sources: dict[str, Source] | None = None, **more: Any) -> Starlette:
    known: dict[str, Source] = {
        "github": made.github("acme", (SECRET,)),
        "shop": made.generic("acme", (SECRET,), PLAIN),
        "stamped": made.generic("acme", (SECRET,), STAMPED),
    }
    return Starlette(routes=routes(known if sources is None else sources, accept, lambda: NOW, **more))


@pytest.fixture
def intake() -> Intake:
    return Intake()


@pytest.fixture
def client(intake: Intake) -> Iterator[TestClient]:
    with TestClient(application(intake)) as client:
        yield client


def github(body: bytes, event: str = "issues", key: str = "d-1", **more: str) -> dict[str, str]:
    return {
        "X-Hub-Signature-256": sign(GITHUB, SECRET.encode(), body),
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": key,
        "Content-Type": "application/json",
        **more,
    }


def plain(body: bytes, secret: str = SECRET, **more: str) -> dict[str, str]:
    return {"X-Signature": sign(PLAIN, secret.encode(), body), **more}


def refused(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return str(problem["detail"])


def test_a_signed_delivery_arrives_once_and_is_acknowledged(client: TestClient, intake: Intake) -> None:
    body = (SHIPPED / "release-published.json").read_bytes()
    response = client.post("/hooks/github", content=body, headers=github(body, "release", "72d3162e"))
    assert response.status_code == 200
    assert response.json() == {"outcome": "accepted", "reason": "", "task_id": "task-1"}
    (arrived,) = intake.arrived
    assert (arrived.tenant, arrived.source, arrived.key) == ("acme", "github", "72d3162e")
    assert (arrived.type, arrived.sender, arrived.proof) == ("release.published", "Codertocat", "hmac:github#0")
    assert arrived.raw == body
    assert arrived.payload["release"]["tag_name"] == "0.0.1"
    assert arrived.conversation is None


def test_a_push_has_no_action_in_its_type(client: TestClient, intake: Intake) -> None:
    body = (SHIPPED / "push.json").read_bytes()
    assert client.post("/hooks/github", content=body, headers=github(body, "push")).status_code == 200
    assert intake.arrived[0].type == "push"


def test_an_issue_names_its_conversation(client: TestClient, intake: Intake) -> None:
    body = b'{"action":"opened","issue":{"number":7},"repository":{"full_name":"octo/hello"}}'
    client.post("/hooks/github", content=body, headers=github(body))
    assert intake.arrived[0].conversation == "octo/hello#7"


def test_a_ping_is_handed_on_like_any_other_event(client: TestClient, intake: Intake) -> None:
    body = b'{"zen":"Keep it logically awesome."}'
    assert client.post("/hooks/github", content=body, headers=github(body, "ping")).status_code == 200
    assert [arrived.type for arrived in intake.arrived] == ["ping"]
    refused(client.post("/hooks/github", content=body, headers={"X-GitHub-Event": "ping"}), 401)


def test_a_repeated_delivery_gets_the_same_status_and_makes_nothing_new(client: TestClient, intake: Intake) -> None:
    body = b'{"a":1}'
    first, second = (client.post("/hooks/github", content=body, headers=github(body)) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert second.json()["outcome"] == "duplicate"
    assert len(intake.arrived) == 1


def test_fifty_identical_deliveries_at_once_make_one_arrival(intake: Intake) -> None:
    body = b'{"a":1}'
    app = application(intake)

    async def all_at_once() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(ask(app, "/hooks/github", [body], github(body)) for _ in range(50)))

    answers = asyncio.run(all_at_once())
    assert {status for status, _ in answers} == {200}
    assert sorted(json.loads(text)["outcome"] for _, text in answers) == ["accepted"] + ["duplicate"] * 49
    assert len(intake.arrived) == 1


async def ask(
    app: Starlette, path: str, chunks: list[bytes], headers: dict[str, str], read: list[int] | None = None
) -> tuple[int, bytes]:
    """One request by hand, so that the body can come in pieces and the reading of it can be watched."""
    rest = list(chunks)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if read is not None:
            read.append(len(rest))
        if not rest:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": rest.pop(0), "more_body": bool(rest)}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": raw, "query_string": b"", "root_path": ""}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_declared_length_over_the_limit_is_refused_before_reading(intake: Intake) -> None:
    read: list[int] = []
    app = application(intake, max_body=100)
    status, _ = asyncio.run(ask(app, "/hooks/github", [b"x"], {"Content-Length": "101"}, read))
    assert (status, read) == (413, [])


def test_b112_a_lying_length_is_found_out_while_reading(intake: Intake) -> None:
    read: list[int] = []
    app = application(intake, max_body=100)
    status, _ = asyncio.run(ask(app, "/hooks/github", [b"x" * 60] * 1000, {"Content-Length": "10"}, read))
    assert status == 413
    assert len(read) == 2, "reading stops with the chunk that is too much"


def test_a_body_of_exactly_the_limit_is_read(intake: Intake) -> None:
    body = b'"' + b"x" * 98 + b'"'
    with TestClient(application(intake, max_body=100)) as client:
        assert client.post("/hooks/shop", content=body, headers=plain(body)).status_code == 200
        assert "100 bytes" in refused(client.post("/hooks/shop", content=body + b" ", headers=plain(body)), 413)


def test_size_comes_before_source_and_source_before_signature(intake: Intake) -> None:
    with TestClient(application(intake, max_body=10)) as client:
        refused(client.post("/hooks/nowhere", content=b"x" * 11), 413)
        refused(client.post("/hooks/nowhere", content=b"x"), 404)
        refused(client.post("/hooks/github", content=b"x"), 401)


def test_a_sender_that_hangs_up_is_no_error_of_ours(intake: Intake) -> None:
    status, _ = asyncio.run(ask(application(intake), "/hooks/github", [], {}))
    assert status == 400
    assert intake.arrived == []


def test_only_post_is_answered(client: TestClient) -> None:
    assert client.get("/hooks/github").status_code == 405


def test_a_wrong_signature_is_refused_before_anything_is_parsed(client: TestClient, intake: Intake) -> None:
    headers = github(b'{"a":1}')
    response = client.post("/hooks/github", content=b'{"a": 1}', headers=headers)
    assert "X-Hub-Signature-256" in refused(response, 401)
    assert response.headers["www-authenticate"] == "Signature"
    refused(client.post("/hooks/github", content=b"\xff not json", headers=headers), 401)
    assert intake.arrived == []


def test_two_secrets_are_active_and_a_removed_one_fails_at_once(intake: Intake) -> None:
    sources: dict[str, Source] = {"shop": made.generic("acme", ("new", "old"), PLAIN)}
    body = b'{"a":1}'
    with TestClient(application(intake, sources)) as client:
        assert client.post("/hooks/shop", content=body, headers=plain(body, "old")).status_code == 200
        assert intake.arrived[0].proof == "hmac:generic#1"
        sources["shop"] = made.generic("acme", ("new",), PLAIN)
        refused(client.post("/hooks/shop", content=body, headers=plain(body, "old")), 401)
        assert client.post("/hooks/shop", content=body, headers=plain(body, "new")).status_code == 200


@pytest.mark.parametrize(("seconds", "status"), [(-299, 200), (-301, 401), (299, 200), (301, 401)])
def test_a_timestamp_outside_the_window_is_refused(client: TestClient, seconds: int, status: int) -> None:
    stamp = str(int((NOW + timedelta(seconds=seconds)).timestamp()))
    body = b'{"a":1}'
    headers = {"X-Timestamp": stamp, "X-Signature": sign(STAMPED, SECRET.encode(), body, stamp)}
    assert client.post("/hooks/stamped", content=body, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Expecting value"),
        (b"{'a':1}", "line 1, column 2"),
        (b'{"a":1}{', "Extra data"),
        (b'{"a":1,"a":2}', "same key twice"),
        (b'{"x":{"a":1,"\\u0061":2}}', "same key twice"),
        (b'{"a":NaN}', "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e400]", "beyond"),
        (b"[1e-99999999999999999999]", "beyond"),
        (b"[1." + b"1" * 5000 + b"]", "beyond"),
        (b"1" * 5000, "digits"),
        (b"[" * 65 + b"]" * 65, "64 levels"),
        (b"[" * 100_000, "64 levels"),
        (b'{"a":' * 100_000, "64 levels"),
        (b'"\xff"', "UTF-8 at byte 1"),
        ('{"a":"é"}'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'"a\nb"', "control character"),
    ],
)
def test_a_body_that_is_not_strict_json_is_refused(client: TestClient, intake: Intake, body: bytes, says: str) -> None:
    assert says in refused(client.post("/hooks/shop", content=body, headers=plain(body)), 400)
    assert intake.arrived == []


def test_sixty_four_levels_are_taken(client: TestClient) -> None:
    body = b"[" * 64 + b"]" * 64
    assert client.post("/hooks/shop", content=body, headers=plain(body)).status_code == 200


def test_another_charset_or_a_form_is_refused_with_a_hint(client: TestClient) -> None:
    body = b'{"a":1}'
    latin = {"Content-Type": "application/json; charset=iso-8859-1"}
    assert "UTF-8" in refused(client.post("/hooks/shop", content=body, headers={**plain(body), **latin}), 400)
    utf8 = {"Content-Type": 'application/json; charset="UTF-8"'}
    assert client.post("/hooks/shop", content=body, headers={**plain(body), **utf8}).status_code == 200
    form = b"payload=%7B%7D"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert "application/json" in refused(client.post("/hooks/shop", content=form, headers=plain(form) | kind), 400)


def test_a_compressed_body_is_verified_as_sent_and_its_size_is_capped(intake: Intake) -> None:
    with TestClient(application(intake, max_body=1000)) as client:

        def post(raw: bytes, encoding: str = "gzip") -> Any:
            return client.post("/hooks/shop", content=raw, headers=plain(raw) | {"Content-Encoding": encoding})

        assert post(gzip.compress(b'{"a":1}')).status_code == 200
        assert intake.arrived[0].payload == {"a": 1}
        assert intake.arrived[0].raw == gzip.compress(b'{"a":1}')
        refused(post(gzip.compress(b"[" + b" " * 400_000 + b"]")), 413)
        refused(post(b"not gzip"), 400)
        refused(post(gzip.compress(b'{"a":1}')[:-4]), 400)
        refused(post(gzip.compress(b"1") + b"more"), 400)
        refused(post(b"{}", "br"), 415)


def test_fractions_arrive_as_they_were_written(client: TestClient, intake: Intake) -> None:
    body = b'{"amount":1.00,"tiny":0.1,"n":12345678901234567890}'
    client.post("/hooks/shop", content=body, headers=plain(body))
    assert intake.arrived[0].payload == {"amount": Decimal("1.00"), "tiny": Decimal("0.1"), "n": 12345678901234567890}
    assert str(intake.arrived[0].payload["amount"]) == "1.00"


def test_the_payload_passes_the_text_gate_and_the_bytes_stay(client: TestClient, intake: Intake) -> None:
    body = b'{"k\\u0000":"a\\ud83d","note":"Looks \\udb40\\udc41good"}'
    assert client.post("/hooks/shop", content=body, headers=plain(body)).status_code == 200
    assert intake.arrived[0].payload == {"k\ufffd": "a\ufffd", "note": "Looks good"}
    assert intake.arrived[0].cleaned == 3
    assert intake.arrived[0].raw == body


@pytest.mark.parametrize(
    ("missing", "says"), [("X-GitHub-Delivery", "X-GitHub-Delivery"), ("X-GitHub-Event", "X-GitHub-Event")]
)
def test_a_github_delivery_without_its_names_is_refused(client: TestClient, missing: str, says: str) -> None:
    headers = github(b"{}")
    del headers[missing]
    assert says in refused(client.post("/hooks/github", content=b"{}", headers=headers), 400)


def test_a_github_delivery_that_is_no_object_is_refused(client: TestClient) -> None:
    assert "object" in refused(client.post("/hooks/github", content=b"[]", headers=github(b"[]")), 400)


def test_a_generic_delivery_without_a_named_key_is_known_by_its_bytes(intake: Intake) -> None:
    body = b'{"a":1}'
    with TestClient(application(intake, {"src_1": made.generic("acme", (SECRET,), PLAIN)})) as client:
        assert client.post("/hooks/src_1", content=body, headers=plain(body)).status_code == 200
    assert intake.arrived[0].key == "4986df057e5d6915ca04a72522cb82c0028c7c0838d2b34d5055bb67e4bf12e6"
    assert intake.arrived[0].type == "event"


def test_a_generic_delivery_is_named_by_headers_or_pointers(intake: Intake) -> None:
    named = Pointed(
        key_pointer="/data/0/id", type_pointer="/ty~1pe", sender_pointer="/from", conversation_pointer="/order"
    )
    by_pointer = made.generic("acme", (SECRET,), PLAIN, named)
    by_header = made.generic("acme", (SECRET,), PLAIN, Pointed(key_headers=("X-Id",), type_header="X-Type"))
    body = b'{"data":[{"id":7}],"ty/pe":"order.paid","from":"ann\\n","order":4711}'
    with TestClient(application(intake, {"p": by_pointer, "h": by_header})) as client:
        client.post("/hooks/p", content=body, headers=plain(body))
        client.post("/hooks/h", content=body, headers=plain(body) | {"x-id": "k-1", "x-type": "paid"})
        assert "/data/0/id" in refused(client.post("/hooks/p", content=b"{}", headers=plain(b"{}")), 400)
        for bad in ("", "x" * 256, "a\u00adb"):
            headers = [(n.encode(), v.encode("latin-1")) for n, v in (plain(body) | {"X-Id": bad}).items()]
            assert "X-Id" in refused(client.post("/hooks/h", content=body, headers=headers), 400)
    first, second = intake.arrived
    assert (first.key, first.type, first.sender, first.conversation) == ("7", "order.paid", "ann", "4711")
    assert (second.key, second.type, second.sender) == ("k-1", "paid", None)


def test_pointers_follow_the_standard() -> None:
    value = {"a": {"": 1, "~": 2, "/": 3}, "l": [4, [5]]}
    assert [at(p, value) for p in ("/a/", "/a/~0", "/a/~1", "/l/0", "/l/1/0")] == [1, 2, 3, 4, 5]
    assert [at(p, value) for p in ("/l/2", "/l/00", "/l/-", "/a/x/y", "/l/0/0")] == [None] * 5
    assert at("", value) is value


def test_credentials_are_not_kept(client: TestClient, intake: Intake) -> None:
    body = b"{}"
    secret = {"Authorization": "Bearer t0p", "X-Gitlab-Token": "t0p", "Cookie": "s=t0p"}
    client.post("/hooks/shop", content=body, headers=plain(body) | secret | {"X-Trace": "7"})
    kept = intake.arrived[0].headers
    assert "t0p" not in json.dumps(kept)
    assert kept["authorization"] == kept["x-gitlab-token"] == kept["cookie"] == "[redacted]"
    assert kept["x-trace"] == "7"
    assert kept["x-signature"] == sign(PLAIN, SECRET.encode(), body)


def test_a_failing_intake_asks_for_another_attempt_and_leaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(arrived: Arrived) -> Verdict:
        raise RuntimeError(f"INSERT failed, password=hunter2, row={arrived.payload}")

    body = b'{"private":"hunter2"}'
    with caplog.at_level(logging.DEBUG, "triggers"), TestClient(application(broken)) as client:
        response = client.post("/hooks/shop", content=body, headers=plain(body))
    assert int(response.headers["retry-after"]) > 0
    refused(response, 503)
    assert "hunter2" not in response.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_what_is_ignored_is_acknowledged_with_its_reason() -> None:
    body = b"{}"
    with TestClient(application(lambda _: Verdict("ignored", "no agent listens to it"))) as client:
        response = client.post("/hooks/shop", content=body, headers=plain(body))
    assert response.status_code == 200
    assert response.json() == {"outcome": "ignored", "reason": "no agent listens to it", "task_id": None}


def test_b113_when_too_many_wait_further_ones_are_told_to_come_again() -> None:
    body = b"{}"
    go = threading.Event()

    def slow(_: Arrived) -> Verdict:
        assert go.wait(20)
        return Verdict("accepted")

    app = application(slow, at_once=2)

    async def crowd() -> list[int]:
        waiting = [asyncio.create_task(ask(app, "/hooks/shop", [body], plain(body))) for _ in range(3)]
        turned_away, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        go.set()
        return [task.result()[0] for task in turned_away] + [(await task)[0] for task in waiting]

    assert sorted(asyncio.run(crowd())) == [200, 200, 503, 503]


@pytest.mark.parametrize("make", [lambda s: made.github("t", s), lambda s: made.generic("t", s, PLAIN)])
def test_a_source_without_a_secret_cannot_be_declared(make: Callable[[tuple[str, ...]], Source]) -> None:
    for secrets in ((), ("",), ("good", "")):
        with pytest.raises(DeclarationError, match="secret"):
            make(secrets)
    assert "hush" not in repr(make(("hush",)))


def test_a_wrong_pointer_cannot_be_declared() -> None:
    with pytest.raises(DeclarationError, match="JSON pointer"):
        Pointed(key_pointer="data.id")


bytes_or_json = st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda i: st.lists(i, max_size=3)
).map(lambda value: json.dumps(value).encode())
latin = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20)


@settings(deadline=None)
@given(bytes_or_json, latin, latin)
def test_no_signed_body_or_header_ends_in_a_server_error(body: bytes, kind: str, encoding: str) -> None:
    headers = github(body) | plain(body) | {"Content-Type": kind, "Content-Encoding": encoding, "X-Odd": kind}
    for path in ("/hooks/github", "/hooks/shop"):
        status, _ = asyncio.run(ask(application(Intake()), path, [body], headers))
        assert status in (200, 400, 413, 415)
