"""Mail that providers post: who is let in, what each says no with, and that the mail is the one that was sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from triggers.declared import Declared
from triggers.envelope import Verdict
from triggers.forms import MOST_FIELDS, read_form
from triggers.inbound import Posted, mailgun_signature
from triggers.problem import Problem
from triggers.webhook import routes

STAMP = "1700000000"
NOW = datetime.fromtimestamp(int(STAMP), UTC)
TOKEN, KEY = "a" * 50, "mailgun-signing-key-1"
SIGNED = "1db49059e91f112fc1e2c9c9b1abe6150bd2b8615e5f2097f337da12e19aa38e"
RAW = (
    b"From: Ann <ann@shop.example>\r\nTo: desk@in.example\r\nSubject: Caf\xc3\xa9\r\nMessage-ID: <m1@shop.example>\r\n"
    b"Content-Type: text/plain; charset=latin-1\r\n\r\nOne caf\xe9, please.\r\n"
)
CURVE = ec.generate_private_key(ec.SECP256R1())
PUBLIC = base64.b64encode(CURVE.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def multipart(fields: Mapping[str, bytes | str], files: Mapping[str, tuple[str, str, bytes]] | None = None) -> bytes:
    """A form as a provider writes it."""
    parts = [
        f'--b0\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
        for name, value in fields.items()
    ]  # fmt: skip
    for name, (filename, kind, content) in (files or {}).items():
        head = f'--b0\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}'
        parts.append(f"{head}\r\n\r\n".encode() + content + b"\r\n")
    return b"".join(parts) + b"--b0--\r\n"


FORM = {"Content-Type": "multipart/form-data; boundary=b0"}


def post(scheme: str, secret: str, body: bytes, headers: Mapping[str, str], **more: Any) -> tuple[int, list[Posted]]:
    """What the source answers, and which mails it hands on."""
    taken: list[Posted] = []

    def take(tenant: str, posted: Posted) -> Verdict:
        assert tenant == "acme"
        taken.append(posted)
        return Verdict("accepted")

    source = Declared.model_validate({"scheme": scheme, "secrets": [secret]}).source("acme")
    app = Starlette(routes=routes({"in": source}, lambda _: Verdict("failed"), lambda: NOW, mail=take, **more))
    with TestClient(app) as client:
        return client.post("/hooks/in", content=body, headers=dict(headers)).status_code, taken


def mailgun(change: Mapping[str, bytes | str], files: Any = None) -> tuple[int, list[Posted]]:
    fields: dict[str, bytes | str] = {
              "recipient": "desk@in.example", "sender": "ann@shop.example", "timestamp": STAMP, "token": TOKEN,
              "signature": SIGNED, "body-mime": RAW, **change}  # fmt: skip
    return post("mailgun", KEY, multipart({n: v for n, v in fields.items() if v != b"-"}, files), FORM)


def test_the_vector_of_mailgun_verifies_and_the_mail_is_byte_for_byte_the_one_that_was_sent() -> None:
    assert mailgun_signature(KEY, STAMP, TOKEN) == SIGNED
    status, (posted,) = mailgun({})
    assert (status, posted.raw) == (200, RAW)
    assert (posted.envelope.mailbox, posted.envelope.recipient) == ("in", "desk@in.example")
    assert posted.envelope.mail_from == "ann@shop.example"
    assert posted.once and TOKEN not in posted.once, "a token may be used once, since it does not sign the mail"


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "0" + SIGNED[1:]}, {"signature": SIGNED.upper()}, {"signature": ""}, {"signature": "é"},
        {"token": "b" * 50}, {"timestamp": "1700000001"}, {"timestamp": "NaN"}, {"timestamp": ""}, {"token": b"-"},
        {"timestamp": b"-"}, {"signature": b"-"}, {"recipient": b"-"}, {"body-mime": b"-", "message-headers": "{"},
        {"timestamp": "1699999000", "signature": mailgun_signature(KEY, "1699999000", TOKEN)},
    ],
)  # fmt: skip
def test_mailgun_is_told_not_to_try_again_what_will_never_be_taken(change: Mapping[str, bytes | str]) -> None:
    assert mailgun(change) == (406, [])


def test_a_mail_in_pieces_is_put_together_and_no_piece_makes_a_header_of_its_own() -> None:
    headers = [["From", "Ann <ann@shop.example>"], ["Message-Id", "<m2@shop.example>"], ["Content-Type", "text/html"],
               ["Subject", "Hi\r\nBcc: evil@x.example"], ["X-Odd: y\r\nZ", "1"],
               ["From", "second@x.example"]]  # fmt: skip
    files = {
        "attachment-1": ("in\nvoice.pdf", "application/pdf", b"%PDF"),
        "attachment-2": ("m", "message/rfc822", RAW),
    }
    pieces: dict[str, bytes | str] = {
              "body-mime": b"-", "body-plain": "One café", "body-html": "<p>One</p>", "from": "third@x.example",
              "subject": "Other", "message-headers": json.dumps(headers)}  # fmt: skip
    status, (posted,) = mailgun(pieces, files)
    assert status == 200
    mail = message_from_bytes(posted.raw, policy=default)
    assert mail.get_all("from") == ["Ann <ann@shop.example>"]
    assert (mail["message-id"], mail["bcc"], mail["z"]) == ("<m2@shop.example>", None, None)
    assert mail["subject"] == "Hi Bcc: evil@x.example"
    plain = mail.get_body(("plain",))
    assert plain is not None and plain.get_content().strip() == "One café"
    assert [part.get_content_type() for part in mail.iter_attachments()] == [
        "application/pdf",
        "application/octet-stream",
    ]


def postmark(secret: str, **change: Any) -> tuple[int, list[Posted]]:
    said = {"From": "ann@shop.example", "OriginalRecipient": "desk+r7@in.example", "Subject": "Hi", "MessageID": "pm-1",
            "TextBody": "One", "HtmlBody": "", "Headers": [{"Name": "Message-ID", "Value": "<m3@shop.example>"}],
            "Attachments": [{"Name": "a.txt", "Content": "aGk=", "ContentType": "text/plain"}], **change}  # fmt: skip
    basic = base64.b64encode(secret.encode()).decode()
    body = json.dumps(said).encode()
    return post(
        "postmark", "pm:a-long-password", body, {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
    )


def test_postmark_is_known_by_name_and_password_and_told_403_for_good() -> None:
    status, (posted,) = postmark("pm:a-long-password")
    mail = message_from_bytes(posted.raw, policy=default)
    assert (status, posted.envelope.recipient, mail["message-id"]) == (200, "desk+r7@in.example", "<m3@shop.example>")
    assert [part.get_content() for part in mail.iter_attachments()] == ["hi"]
    assert postmark("pm:a-long-password", RawEmail=RAW.decode("utf-8", "replace"))[1][0].raw.startswith(b"From: Ann")
    for wrong in ("pm:another", "pm", "", "pm:a-long-passwor", "é:ü"):
        assert postmark(wrong) == (403, [])
    assert postmark("pm:a-long-password", OriginalRecipient=None) == (403, [])
    assert post("postmark", "pm:a-long-password", b"{}", {}) == (403, [])


def sendgrid(fields: Mapping[str, bytes | str], stamp: str = STAMP, flip: bool = False) -> tuple[int, list[Posted]]:
    body = multipart(fields)
    signature = base64.b64encode(CURVE.sign(stamp.encode() + body, ec.ECDSA(SHA256()))).decode()
    name = "X-Twilio-Email-Event-Webhook"
    sent = body.replace(b"Ann", b"Eve") if flip else body
    return post("sendgrid", PUBLIC, sent, {**FORM, f"{name}-Signature": signature, f"{name}-Timestamp": stamp})


def test_sendgrid_signs_the_whole_form_and_sends_one_mail_for_several_recipients() -> None:
    to = json.dumps({"to": ["desk@in.example", "ops@in.example"], "from": "ann@shop.example"})
    status, posted = sendgrid({"email": RAW, "envelope": to})
    assert (status, [each.raw for each in posted]) == (200, [RAW, RAW])
    assert [each.envelope.recipient for each in posted] == ["desk@in.example", "ops@in.example"]
    pieces = {"headers": "From: Ann <a@x.example>\nSubject: long\n line\nMessage-ID: <m4@x.example>\n", "text": "Two"}
    mail = message_from_bytes(sendgrid({**pieces, "envelope": to})[1][0].raw, policy=default)
    assert (mail["from"], mail["subject"], mail["message-id"]) == ("Ann <a@x.example>", "long line", "<m4@x.example>")
    assert sendgrid({"email": RAW, "envelope": to}, flip=True) == (401, [])
    assert sendgrid({"email": RAW, "envelope": to}, stamp="1699999000") == (401, [])
    for odd in ("", "[]", "{}", '{"to": "desk@in.example"}', '{"to": [7]}', "[" * 10_000):
        assert sendgrid({"email": RAW, "envelope": odd}) == (400, [])


def test_what_cannot_be_stored_now_is_asked_for_again_from_every_provider() -> None:
    source = Declared.model_validate({"scheme": "mailgun", "secrets": [KEY]}).source("acme")

    def away(tenant: str, posted: Posted) -> Verdict:
        raise RuntimeError("the database is away")

    fields: dict[str, bytes | str] = {
        "recipient": "d@in.example",
        "timestamp": STAMP,
        "token": TOKEN,
        "signature": SIGNED,
        "body-mime": RAW,
    }
    with TestClient(Starlette(routes=routes({"in": source}, away, lambda: NOW, mail=away))) as client:  # type: ignore[arg-type]
        answer = client.post("/hooks/in", content=multipart(fields), headers=FORM)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"--b0", multipart({"a": "1"})[:-4], multipart({f"f{n}": "1" for n in range(MOST_FIELDS + 1)}),
        multipart({"a": "1"}).replace(b"--b0--", multipart({"a": "2"})), b"--b0\r\nX: y\r\n\r\nz\r\n--b0--\r\n",
        b"--b0\r\n" + b"X" * 10_000 + b": y\r\n\r\nz\r\n--b0--\r\n",
        b"--b0\r\n" + b"X: y\r\n" * 5000 + b"\r\nz\r\n--b0--",
    ],
)  # fmt: skip
def test_a_form_that_is_cut_or_endless_is_refused(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_form(body, "multipart/form-data; boundary=b0")
    assert refused.value.status == 400


def test_other_content_types_are_refused_and_urlencoded_forms_are_read() -> None:
    for kind in ("", "text/plain", "multipart/form-data", "multipart/mixed; boundary=b0", "application/json"):
        with pytest.raises(Problem) as refused:
            read_form(b"a=1", kind)
        assert refused.value.status == 415
    assert read_form(urlencode({"a": "ü", "b": ""}).encode(), "application/x-www-form-urlencoded").fields == {
        "a": "ü",
        "b": "",
    }


@given(st.binary(max_size=300), st.sampled_from([FORM["Content-Type"], "application/x-www-form-urlencoded", "x"]))
def test_no_form_breaks_its_reader(body: bytes, kind: str) -> None:
    for given_body in (body, b"--b0\r\nContent-Disposition: form-data; name=a\r\n\r\n" + body, multipart({"a": body})):
        try:
            read_form(given_body, kind)
        except Problem as problem:
            assert problem.status in (400, 415)
