"""A mail as its bytes become one value, whichever way it came: SMTP, LMTP, IMAP or a provider's webhook.

Whatever is wrong with a mail is written down and never fatal; only one that exceeds a limit is refused, unread. What is
attached is listed, never opened; no picture and no link is fetched. `own` are the sender's words without what they
quote, and all that an agent sees.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default
from email.utils import getaddresses
from typing import Any

from pydantic import BaseModel, ConfigDict

from twelvefold.text import inspect_json, one_line, shorten

from .envelope import Arrived
from .mail_bounce import Bounced, bounced, returned
from .mail_judge import Facts, Headers, Rules, addresses, automatic, proof
from .mail_limits import check
from .mail_quotes import decision, own_words
from .mail_text import decode, decode_words, from_html

SOURCE = "email"
BOUNCES = frozenset({"null_return_path", "auto_submitted", "report", "robot_sender"})
"""The signals that a bounce has."""
LONGEST_TEXT = 200_000
MOST_ATTACHMENTS = 50
MOST_IDS = 50
_ID = re.compile(r"<([^<>\s]{1,900})>")
_KEPT = ("from", "to", "cc", "date", "subject", "message-id", "in-reply-to", "references", "authentication-results")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of a mail besides its bytes. `mailbox` is where it was put; `recipient` the RCPT TO, None where
    only headers tell; `mail_from` the MAIL FROM, empty for a bounce, None where unknown.
    """

    mailbox: str
    recipient: str | None = None
    mail_from: str | None = None


class Attachment(BaseModel):
    """One attachment as it is listed; its bytes stay in the stored mail."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str
    size: int
    sha256: str


class Mail(BaseModel):
    """One mail, read and judged. Addresses are in lower case, ids without their brackets.

    `recipients` are the addresses it may have been sent to, the surest first; `automatic` is the signal that a program
    sent it, `proof` what proves the sender, or `none`; `decides` what its words decide, if they are words that may;
    `headers` are those that are kept, by their names in lower case.
    """

    model_config = ConfigDict(frozen=True)

    sender: str
    name: str = ""
    recipients: tuple[str, ...] = ()
    subject: str = ""
    text: str = ""
    own: str = ""
    decides: str = ""
    message_id: str = ""
    references: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    automatic: str = ""
    proof: str = "none"
    bounced: tuple[Bounced, ...] = ()
    returned: tuple[str, ...] = ()
    hidden: int = 0
    defects: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    cleaned: int = 0

    @property
    def ignored(self) -> str:
        """Why nobody is to read it; empty where somebody is."""
        return self.automatic or ("" if self.own or self.attachments else "empty")

    @property
    def root(self) -> str:
        """The id that the mails of one conversation have in common."""
        return self.references[0] if self.references else self.message_id


def read_mail(raw: bytes, envelope: Envelope, rules: Rules) -> Mail:
    """The mail. Raises Excessive for one that exceeds a limit."""
    check(raw)
    message = message_from_bytes(raw, policy=default)
    assert isinstance(message, EmailMessage)
    headers = _headers(message)
    found = {name: value for name, value in reversed(headers)}
    senders = [(name, address.lower()) for name, address in getaddresses([v for n, v in headers if n == "from"])]
    name, sender = senders[0] if senders else ("", "")
    ids = [_tidy(id_) for id_ in _ID.findall(found.get("message-id", ""))]
    answered = [_tidy(i) for n in ("references", "in-reply-to") for i in _ID.findall(found.get(n, ""))]
    facts = Facts(
        headers, sender if "@" in sender else "", envelope.mail_from, message.get_content_type(), "".join(ids[:1]),
        several=len(senders) != 1 or sum(1 for n, _ in headers if n == "from") != 1,
    )  # fmt: skip
    parts = _Parts()
    parts.read(message)
    text = shorten("\n\n".join(filter(None, (part.strip() for part in parts.texts))), LONGEST_TEXT)
    own = own_words(text, reply=bool(answered))
    signal = automatic(facts, rules)
    back = returned(message) if signal in BOUNCES else ()
    cleaned = inspect_json([text, own.text, found.get("subject", ""), name])
    text, said, subject, name = cleaned.value
    return Mail(
        sender=facts.sender, name=one_line(name, 100), recipients=tuple(_recipients(envelope, headers)),
        subject=one_line(subject), text=text, own=said, decides=decision(own) or "", message_id="".join(ids[:1]),
        references=tuple(dict.fromkeys(answered))[:MOST_IDS], attachments=tuple(parts.attachments), automatic=signal,
        proof=proof(facts, rules), bounced=bounced(message) if signal in BOUNCES else (),
        returned=tuple(_tidy(i.strip("<>")) for i in back), hidden=parts.hidden,
        defects=tuple(dict.fromkeys(parts.defects))[:20], cleaned=cleaned.changed,
        headers={kept: one_line(value, 2000) for kept, value in found.items() if kept in _KEPT},
    )  # fmt: skip


def key_of(raw: bytes, mail: Mail, mailbox: str, recipient: str) -> str:
    """The key of a delivery: the same mail to the same mailbox and recipient is one fact, however often it comes."""
    named = mail.message_id or f"sha256:{hashlib.sha256(raw).hexdigest()}"
    return hashlib.sha256("\0".join((named, mailbox, recipient.lower())).encode("utf-8", "replace")).hexdigest()


def arrived(raw: bytes, mail: Mail, *, tenant: str, mailbox: str, recipient: str) -> Arrived:
    """The mail as the intake takes it. Its type is the address that it was sent to."""
    return Arrived(
        tenant=tenant, source=SOURCE, key=key_of(raw, mail, mailbox, recipient), type=recipient.lower(),
        payload=payload(mail), raw=raw, headers=mail.headers, sender=mail.sender or None,
        conversation=mail.root or None, cleaned=mail.cleaned,
        proof=mail.proof if mail.proof == "none" else f"{SOURCE}:{mail.proof}",
    )  # fmt: skip


def payload(mail: Mail) -> dict[str, Any]:
    """What `read=` of an agent gets: `text` are the sender's own words, `full` all of them."""
    return {
        "text": mail.own, "full": mail.text, "subject": mail.subject, "sender": mail.sender, "name": mail.name,
        "attachments": [each.model_dump() for each in mail.attachments], "hidden_text": mail.hidden,
    }  # fmt: skip


def _headers(message: Message) -> Headers:
    return [(name.lower(), _unfolded(str(value))) for name, value in message.raw_items()]


def _unfolded(value: str) -> str:
    return decode_words(re.sub(r"[\r\n]+[ \t]*", " ", value)).strip()


def _tidy(id_: str) -> str:
    """An id as it is compared: its domain in lower case."""
    left, at, domain = id_.rpartition("@")
    return f"{left}{at}{domain.lower()}"


def _recipients(envelope: Envelope, headers: Headers) -> Iterator[str]:
    if envelope.recipient is not None:
        yield envelope.recipient.lower().strip("<>")
        return
    names = ("delivered-to", "x-original-to", "envelope-to", "to", "cc")
    found = [address for name in names for n, value in headers if n == name for address in addresses(value)]
    yield from list(dict.fromkeys(found))[:MOST_IDS]


class _Parts:
    """Walks the parts of a mail: their texts, what is attached, and what is wrong with them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.attachments: list[Attachment] = []
        self.defects: list[str] = []
        self.hidden = 0

    def read(self, part: Message) -> None:
        """One part and those inside it."""
        try:
            self._read(part)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self.defects.append(type(error).__name__)  # the standard library fails in many ways on a strange part

    def _read(self, part: Message) -> None:
        self.defects += [type(defect).__name__ for defect in part.defects]
        kind = part.get_content_type()
        inside = part.get_payload() if part.is_multipart() else None
        if part.get_content_maintype() == "message" or part.get_content_disposition() == "attachment":
            self._attach(part, kind)
        elif isinstance(inside, list):
            shown = self._chosen(inside) if kind == "multipart/alternative" else inside
            for each in shown:
                if isinstance(each, Message):
                    self.read(each)
        elif kind == "text/html":
            text, hidden = from_html(self._text(part))
            self.texts.append(text)
            self.hidden += hidden
        elif part.get_content_maintype() in ("text", "multipart"):
            self.texts.append(self._text(part))
        else:
            self._attach(part, kind)

    def _chosen(self, inside: list[Any]) -> list[Any]:
        """Of alternatives the plain text; HTML where it is missing or empty."""
        kinds = [each.get_content_type() if isinstance(each, Message) else "" for each in inside]
        plain = [each for each, kind in zip(inside, kinds, strict=True) if kind == "text/plain"]
        if any(self._text(each).strip() for each in plain):
            return plain[:1] + [e for e, k in zip(inside, kinds, strict=True) if not k.startswith(("text/", "multi"))]
        return [each for each in inside if each not in plain]

    def _text(self, part: Message) -> str:
        raw = part.get_payload(decode=True)
        return decode(raw, part.get_content_charset()) if isinstance(raw, bytes) else str(part.get_payload())

    def _attach(self, part: Message, kind: str) -> None:
        if len(self.attachments) >= MOST_ATTACHMENTS:
            self.defects.append("TooManyAttachments")
            return
        whole = part.get_payload(decode=True)
        raw = whole if isinstance(whole, bytes) else part.as_bytes()
        name = one_line(decode_words(str(part.get_filename() or "")), 200)
        self.attachments.append(
            Attachment(name=name, type=one_line(kind, 100), size=len(raw), sha256=hashlib.sha256(raw).hexdigest())
        )
