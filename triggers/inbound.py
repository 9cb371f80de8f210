"""Mail that a provider took for us and posts here: the raw mail where it is sent, else one built of the fields.

What comes of it is the same as of a mail by SMTP: `mail.py` reads and judges it. The provider is proved by its request;
that proves nothing about who wrote the mail.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Literal

from twelvefold.text import clean, one_line

from .adapter import Received, Source, Unverified, Verifier, check_secrets
from .forms import Form, read_form
from .mail import Envelope
from .problem import Problem
from .proofs import Basic, Signed
from .schemes import SENDGRID
from .source import json_of, text_of

LARGEST = 30 * 1024 * 1024
WINDOW_S = 300
_KIND = re.compile(r"(?!multipart|message)[a-z]+/[a-z0-9.+-]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_OURS = frozenset({"content-type", "content-transfer-encoding", "mime-version"})

Provider = Literal["postmark", "mailgun", "sendgrid"]
REFUSALS: dict[Provider, int | None] = {"postmark": 403, "mailgun": 406, "sendgrid": None}
"""What makes each stop trying: any other status is tried again, for hours."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One mail of a request, to one recipient. `once`, if there is one, may be used once: it does not sign the mail."""

    raw: bytes
    envelope: Envelope
    once: str = ""


@dataclass(frozen=True, slots=True)
class MailgunSigned:
    """Mailgun signs `timestamp` and `token`, and nothing of the mail: a token that was used is worth nothing."""

    secrets: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        check_secrets(self.secrets)

    def verify(self, received: Received) -> str:
        """Such as `hmac:mailgun#0`. Raises Unverified."""
        try:
            form = _form(received)
            stamp, token, given = (form.need(name) for name in ("timestamp", "token", "signature"))
        except Problem:
            raise Unverified("Mailgun sends a form with timestamp, token and signature.") from None
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 13):
            raise Unverified("The timestamp must be whole Unix seconds, such as 1700000000.")
        matched = [
            index for index, secret in enumerate(self.secrets)
            if hmac.compare_digest(mailgun_signature(secret, stamp, token).encode(), given.encode("utf-8", "replace"))
        ]  # fmt: skip
        if not matched:
            raise Unverified("The signature does not match timestamp and token. Check the webhook signing key.")
        if abs(received.at.timestamp() - int(stamp)) > WINDOW_S:
            raise Unverified(f"The timestamp is more than {WINDOW_S} s from ours.")
        return f"hmac:mailgun#{matched[0]}"


def mailgun_signature(key: str, timestamp: str, token: str) -> str:
    """What Mailgun signs with this key."""
    return hmac.digest(key.encode(), f"{timestamp}{token}".encode(), "sha256").hex()


def posted(provider: Provider, received: Received) -> list[Posted]:
    """The mails of one request. Raises Problem 400 or 415 for what this provider does not send."""
    match provider:
        case "postmark":
            return list(_postmark(received))
        case "mailgun":
            return list(_mailgun(received))
        case "sendgrid":
            return list(_sendgrid(received))


def source(name: str, tenant: str, secrets: tuple[str, ...]) -> Source:
    """The provider of this name as a source of webhooks. Raises DeclarationError for secrets that cannot prove it."""
    assert name in REFUSALS
    provider: Provider = name
    verifiers: dict[Provider, Callable[[], Verifier]] = {
        "postmark": lambda: Basic(name, secrets), "mailgun": lambda: MailgunSigned(secrets),
        "sendgrid": lambda: Signed(name, secrets, (SENDGRID,)),
    }  # fmt: skip
    return Source(
        tenant, verifiers[provider](), None, max_body=LARGEST, refusal=REFUSALS[provider],
        mails=lambda received: posted(provider, received),
    )  # fmt: skip


def _postmark(received: Received) -> Iterator[Posted]:
    said = json_of(received)
    if not isinstance(said, dict):
        raise Problem(400, "Not a mail of Postmark", "The body is a JSON object.")
    recipient = text_of(said.get("OriginalRecipient"))
    if not recipient:
        raise Problem(400, "No recipient", "The member OriginalRecipient says who the mail was for.")
    raw = said.get("RawEmail")
    if isinstance(raw, str) and raw:
        whole = raw.encode("utf-8", "surrogateescape")
    else:
        named = _pairs(said.get("Headers"), "Name", "Value")
        more = [(name, text_of(said.get(name)) or "") for name in ("From", "To", "Cc", "Subject", "Date")]
        whole = _built([*named, *more], said.get("TextBody"), said.get("HtmlBody"), _attached(said.get("Attachments")))
    yield Posted(whole, Envelope(received.source, recipient))


def _mailgun(received: Received) -> Iterator[Posted]:
    form = _form(received)
    token = hashlib.sha256(form.need("token").encode("utf-8", "replace")).hexdigest()
    envelope = Envelope(
        received.source, form.need("recipient"), form.text("sender") if "sender" in form.fields else None
    )
    if "body-mime" in form.fields:
        whole = form.raw("body-mime")
    else:
        headers = _list(form.text("message-headers") or "[]")
        named = [(str(pair[0]), str(pair[1])) for pair in headers if isinstance(pair, list) and len(pair) == 2]
        more = [(name, form.text(name.lower())) for name in ("From", "Subject")]
        more += [("Message-ID", form.text("Message-Id"))]
        whole = _built([*named, *more], form.text("body-plain"), form.text("body-html"), _files(form))
    yield Posted(whole, envelope, once=token)


def _sendgrid(received: Received) -> Iterator[Posted]:
    form = _form(received)
    envelope = _list(form.need("envelope"))
    to = envelope.get("to") if isinstance(envelope, dict) else None
    if not isinstance(to, list) or not to or not all(isinstance(address, str) for address in to):
        raise Problem(400, "No recipient", "The field envelope is JSON that says in `to` who the mail was for.")
    if "email" in form.fields:
        whole = form.raw("email")
    else:
        named = [(n, v.strip()) for n, found, v in (line.partition(":") for line in _lines(form)) if found]
        whole = _built(named, form.text("text"), form.text("html"), _files(form))
    sender = envelope.get("from")
    for address in to[:50]:
        yield Posted(whole, Envelope(received.source, address, sender if isinstance(sender, str) else None))


def _lines(form: Form) -> Iterable[str]:
    return form.text("headers").replace("\r\n", "\n").replace("\n ", " ").replace("\n\t", " ").split("\n")


def _form(received: Received) -> Form:
    return read_form(received.body, received.header("content-type"))


def _list(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Problem(400, "Not JSON", "A field of the form that is JSON cannot be read.") from None


def _pairs(given: Any, name: str, value: str) -> list[tuple[str, str]]:
    found = given if isinstance(given, list) else []
    return [
        (str(each[name]), str(each[value])) for each in found if isinstance(each, dict) and {name, value} <= each.keys()
    ]


def _attached(given: Any) -> Iterator[tuple[str, str, bytes]]:
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict):
            try:
                content = base64.b64decode(str(each.get("Content", "")))
            except NotBase64:
                content = b""
            yield str(each.get("Name", "")), str(each.get("ContentType", "")), content


def _files(form: Form) -> Iterator[tuple[str, str, bytes]]:
    for file in form.files.values():
        yield file.name, file.type, file.content


def _built(
    headers: Iterable[tuple[str, str]], text: Any, html: Any, files: Iterable[tuple[str, str, bytes]]
) -> bytes:  # fmt: skip
    """A mail of its parts. Of headers that may be there once the first counts; none can begin another line."""
    mail, once = EmailMessage(policy=SMTP), set[str]()
    mail.set_content(clean(text) if isinstance(text, str) else "")
    if isinstance(html, str) and html:
        add = mail.add_alternative if text else mail.set_content
        add(clean(html), subtype="html")
    for name, kind, content in files:
        main, sub = kind.split("/") if _KIND.fullmatch(kind) else ("application", "octet-stream")
        mail.add_attachment(content, maintype=main, subtype=sub, filename=one_line(name, 200) or None)
    lines = []
    for name, value in headers:
        key, said = name.strip().lower(), " ".join(value.split())
        single = key not in ("received", "authentication-results", "dkim-signature")
        if said and _NAME.fullmatch(key) and key not in _OURS and not (single and key in once):
            once.add(key)
            lines.append(f"{name.strip()}: {said}\r\n".encode("utf-8", "replace"))
    return b"".join(lines) + mail.as_bytes()
