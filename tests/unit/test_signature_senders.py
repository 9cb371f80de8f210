"""Senders that are known by name: every published vector, and every way to get one wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from triggers.adapter import Received, Source, Unverified
from triggers.declared import Declared
from triggers.envelope import Arrived, Verdict
from triggers.proofs import Signed
from triggers.schemes import GITHUB, SENDGRID, SLACK, STANDARD, STRIPE, SVIX
from triggers.senders import SENDERS
from triggers.signature import Scheme, sign, verify
from triggers.webhook import routes

STAMP = "1700000000"
NOW = datetime.fromtimestamp(int(STAMP), UTC)
PAID = b'{"id":"evt_1","object":"event","type":"invoice.paid"}'
NEW_MAC = "dfb4777aaaec4ea29ff455dd4df7fe6b2ef71096ad3a93a158db7e100109ea91"
OLD_MAC = "46e84f37d438f31cb829280aa6b5f5dcbb24573db7944cc61edb56240a8e14d2"
RUN = b'{"type":"run.completed","timestamp":"2023-11-14T22:13:20Z","data":{"run_id":"r_1"}}'
NEW, OLD = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="
BY_NEW, BY_OLD = "v1,HiJHW89Z/aOXF14lmlVECm72OpMqXZDHBQ81UkcCugk=", "v1,MKs976bdPgujQnHZ7OsYING6g4OOv0fUFx1rhpWBSDk="
PUBLIC = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
BY_PUBLIC = "v1a,csHw3+OIZlQ9xW2WY552kf+D9DH9/55SMCFY7Rd2w3qEry1+OE7h3RjqKtlizxiG0IAkoMwpl1IP8Pb/5XCMCQ=="
GRID_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAERxw+dYxJBChbun5TEY7Q9SSt6wdX0lvS+Oew1236cUzdUg96yoqLkXrMN/Ud6PDJu+OthYOC5wLc"
    "JaEtCfeoWA=="
)
GRID_BODY = b'--b\r\nContent-Disposition: form-data; name="subject"\r\n\r\nhi\r\n--b--\r\n'
BY_GRID = "MEQCIH5EEio2f+TOqYI748qq8q3D52xxXE0E1FPsc65jef33AiAvgei19ntPkRISHRvyuAIapMUrQYTkTQPk/zFtRVRkvg=="


def stripe(value: str, secrets: tuple[str, ...] = ("whsec_test_secret",), at: datetime = NOW) -> int:
    return verify(STRIPE, [s.encode() for s in secrets], [("stripe-signature", value)], PAID, at)


def standard(
    signature: str, *secrets: str, id: str = "msg_1", stamp: str = STAMP, body: bytes = RUN, scheme: Scheme = STANDARD
) -> int:
    assert scheme.id_header and scheme.timestamp_header
    headers = [(scheme.header, signature), (scheme.id_header, id), (scheme.timestamp_header, stamp)]
    return verify(scheme, [s.encode() for s in secrets], headers, body, datetime.fromtimestamp(int(stamp), UTC))


def grid(signature: str = BY_GRID, body: bytes = GRID_BODY, stamp: str = STAMP, key: str = GRID_KEY) -> int:
    assert SENDGRID.timestamp_header
    headers = [(SENDGRID.header, signature), (SENDGRID.timestamp_header, stamp)]
    return verify(SENDGRID, [key.encode()], headers, body, NOW)


def test_the_vectors_of_stripe_verify_also_while_a_secret_is_rolled() -> None:
    assert stripe(f"t={STAMP},v1={NEW_MAC}") == 0
    both = f"t={STAMP},v1={OLD_MAC},v1={NEW_MAC},v0=abc"
    assert stripe(both) == 0
    assert stripe(both, ("whsec_old",)) == 0
    assert stripe(f"t={STAMP},v1={OLD_MAC}", ("whsec_test_secret", "whsec_old")) == 1
    assert stripe(f"v1={NEW_MAC}, t={STAMP}, x=y, z") == 0, "order, blanks and unknown members do not matter"


@pytest.mark.parametrize(
    "value",
    [
        "", f"t={STAMP}", f"v1={NEW_MAC}", f"t={STAMP},v0={NEW_MAC}", f"t={STAMP},v1={OLD_MAC}", f"t=,v1={NEW_MAC}",
        f"t={STAMP},t={STAMP},v1={NEW_MAC}", f"t=1700000001,v1={NEW_MAC}", f"t={STAMP},v1={NEW_MAC.upper()}",
        f"t=NaN,v1={NEW_MAC}", f"t={STAMP};v1={NEW_MAC}", f"t={STAMP},v1={NEW_MAC[:-1]}", f"t={STAMP},v1=é\ud83d",
    ],
)  # fmt: skip
def test_a_signature_of_stripe_written_otherwise_is_refused(value: str) -> None:
    with pytest.raises(Unverified):
        stripe(value)


@pytest.mark.parametrize(("late", "fits"), [(299, True), (301, False), (-299, True), (-301, False)])
def test_the_time_of_stripe_has_a_window(late: int, fits: bool) -> None:
    value, at = f"t={STAMP},v1={NEW_MAC}", NOW + timedelta(seconds=late)
    if fits:
        assert stripe(value, at=at) == 0
        return
    with pytest.raises(Unverified, match="300 s"):
        stripe(value, at=at)


def test_the_vectors_of_standard_webhooks_verify_with_either_secret_and_with_a_public_key() -> None:
    published = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert standard(published, secret, id=id, stamp="1614265330", body=b'{"test": 2432232314}') == 0
    both = f"{BY_OLD} {BY_NEW}"
    assert (standard(both, NEW), standard(both, OLD), standard(BY_OLD, NEW, OLD)) == (0, 0, 1)
    assert standard(f"{BY_OLD} {BY_PUBLIC}", PUBLIC) == 0
    assert standard(BY_NEW, NEW, scheme=SVIX) == 0


@pytest.mark.parametrize(
    ("signature", "secret", "change"),
    [
        (BY_OLD, NEW, {}),
        (BY_NEW, PUBLIC, {}),
        (BY_PUBLIC.replace("v1a,", "v1,"), PUBLIC, {}),
        (BY_PUBLIC.replace("cs", "cz"), PUBLIC, {}),
        ("v1a,é", PUBLIC, {}),
        (BY_NEW[3:], NEW, {}),
        (BY_NEW.replace("v1,", "v2,"), NEW, {}),
        (BY_NEW.rstrip("="), NEW, {}),
        (BY_NEW, NEW, {"id": "msg_2"}),
        (BY_NEW, NEW, {"id": ""}),
        (BY_NEW, NEW, {"id": "msg.1"}),
        (BY_NEW, NEW, {"stamp": "1700000001"}),
        (BY_NEW, NEW, {"body": RUN + b" "}),
        (BY_NEW, NEW, {"body": b""}),
        ("", NEW, {}),
    ],
)
def test_a_standard_webhook_that_is_not_what_was_signed_is_refused(
    signature: str, secret: str, change: Mapping[str, Any]
) -> None:
    with pytest.raises(Unverified):
        standard(signature, secret, **change)


def test_the_vector_of_sendgrid_verifies_by_its_bytes_and_nothing_else_does() -> None:
    assert grid() == 0
    other = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAERxw+dYxJBChbun5TEY7Q9SSt6wdX0lvS"
    for wrong in (
        {"body": GRID_BODY.replace(b"hi", b"ho")}, {"body": GRID_BODY.replace(b"\r\n", b"\n")}, {"stamp": "1700000001"},
        {"signature": BY_GRID[:-8]}, {"signature": "é"}, {"signature": ""}, {"key": other},
    ):  # fmt: skip
        with pytest.raises(Unverified):
            grid(**wrong)


def declared(scheme: str, *secrets: str, **more: Any) -> Source:
    return Declared.model_validate({"scheme": scheme, "secrets": secrets, **more}).source("acme")


def post(source: Source, headers: Mapping[str, str], body: bytes, at: datetime = NOW) -> tuple[int, list[Arrived]]:
    """What this source answers, and what it hands on."""
    arrived: list[Arrived] = []

    def accept(what: Arrived) -> Verdict:
        arrived.append(what)
        return Verdict("accepted")

    with TestClient(Starlette(routes=routes({"s": source}, accept, lambda: at))) as client:
        return client.post("/hooks/s", content=body, headers=dict(headers)).status_code, arrived


def test_senders_are_declared_by_name_and_say_what_a_delivery_is() -> None:
    sent = {"Stripe-Signature": f"t={STAMP},v1={NEW_MAC}"}
    status, (paid,) = post(declared("stripe", "whsec_test_secret"), sent, PAID)
    assert (status, paid.key, paid.type, paid.proof, paid.ignore) == (200, "evt_1", "invoice.paid", "hmac:stripe#0", "")
    for name in ("webhook", "svix"):
        sent = {f"{name}-id": "msg_1", f"{name}-timestamp": STAMP, f"{name}-signature": BY_NEW}
        status, (done,) = post(declared("standard", OLD, NEW), sent, RUN)
        assert (status, done.key, done.type, done.proof) == (200, "msg_1", "run.completed", "hmac:standard#1")
    status, (signed,) = post(declared("openai", PUBLIC), {**sent_by("webhook", BY_PUBLIC)}, RUN)
    assert (status, signed.proof) == (200, "key:openai#0")


def sent_by(name: str, signature: str) -> dict[str, str]:
    return {f"{name}-id": "msg_1", f"{name}-timestamp": STAMP, f"{name}-signature": signature}


def test_gitlab_is_known_by_its_token_or_by_its_signature() -> None:
    gitlab = declared("gitlab", NEW, "an older token of GitLab")
    issue = (
        b'{"object_kind":"issue","user":{"username":"ann"},"object_attributes":{"action":"open","url":"https://g/1"}}'
    )
    ids = {"X-Gitlab-Event-UUID": "e-1", "X-Gitlab-Webhook-UUID": "w-1"}
    status, (opened,) = post(gitlab, {"X-Gitlab-Token": "an older token of GitLab", **ids}, issue)
    assert (status, opened.proof, opened.key, opened.type) == (200, "token:gitlab#1", "e-1 w-1", "issue.open")
    assert (opened.sender, opened.conversation) == ("ann", "https://g/1")
    assert opened.headers["x-gitlab-token"] == "[redacted]"
    status, (signed,) = post(gitlab, sent_by("webhook", BY_NEW), RUN)
    assert (status, signed.proof, signed.key) == (200, "hmac:gitlab#0", "msg_1")
    tokens = [{"X-Gitlab-Token": token} for token in ("", "an older token of gitlab")]
    for wrong in ({}, *tokens, sent_by("webhook", BY_OLD)):
        assert post(gitlab, {**wrong, **ids}, issue) == (401, [])


def test_b114_pings_and_test_events_are_acknowledged_and_become_no_task() -> None:
    test = b'{"id":"evt_2","type":"invoice.paid","livemode":false}'

    def sent(body: bytes) -> dict[str, str]:
        return {"Stripe-Signature": f"t={STAMP},{sign(STRIPE, b'whsec_test_secret', body, STAMP)}"}

    for body, ignored in ((test, "test_mode"), (test.replace(b"false", b"true"), "")):
        status, (arrived,) = post(declared("stripe", "whsec_test_secret"), sent(body), body)
        assert (status, arrived.ignore) == (200, ignored)
    status, (arrived,) = post(declared("stripe", "whsec_test_secret", test_events=True), sent(test), test)
    assert (status, arrived.ignore) == (200, "")
    ping = {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "1", "X-Hub-Signature-256": sign(GITHUB, b"s" * 16, b"{}")}
    status, (arrived,) = post(declared("github", "s" * 16), ping, b"{}")
    assert (status, arrived.ignore) == (200, "ping")


def test_b110_no_sender_is_let_in_without_a_secret_that_can_verify() -> None:
    for scheme in SENDERS:
        with pytest.raises(ValueError, match="at least one secret"):
            Declared.model_validate({"scheme": scheme, "secrets": ()})
    for scheme, secret in (("standard", "whsec_not base64 at all"), ("openai", "whpk_AAAA" + "A" * 10)):
        with pytest.raises(ValueError, match=r"base64|public key"):
            declared(scheme, secret)
    old, new = declared("stripe", "whsec_old" + "-" * 8, "whsec_test_secret"), declared("stripe", "whsec_old" + "-" * 8)
    sent = {"Stripe-Signature": f"t={STAMP},v1={NEW_MAC}"}
    assert (post(old, sent, PAID)[0], post(new, sent, PAID)) == (200, (401, []))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "header"),
        ({"scheme": "nobody"}, "twelvefold.triggers"),
        ({"scheme": "stripe", "header": "X-S"}, "says how it signs"),
        ({"scheme": "stripe", "prefix": "v1="}, "says how it signs"),
    ],
)
def test_a_declaration_that_does_not_fit_says_what_does(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Declared.model_validate({**fields, "secrets": ["s" * 16]})


@pytest.mark.parametrize("scheme", [STRIPE, STANDARD, SVIX, SLACK, SENDGRID])
def test_b109_a_header_that_is_missing_or_there_twice_or_no_number_is_no_proof_and_no_fault(scheme: Scheme) -> None:
    key = GRID_KEY if scheme is SENDGRID else NEW
    names = [name for name in (scheme.header, scheme.timestamp_header, scheme.id_header) if name]
    for name in names:
        for pairs in ([], [(name, "1")] * 2, [(name, "NaN")], [(name, "9" * 400)], [(name, "\ud83d")]):
            rest = [(other, STAMP) for other in names if other != name]
            with pytest.raises(Unverified):
                Signed("any", (key,), (scheme,)).verify(Received("s", b"{}", (*rest, *pairs), NOW))
