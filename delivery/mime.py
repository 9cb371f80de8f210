"""A letter as the bytes of a mail: the same bytes at every attempt, and no way for data to write a header.

Mail that machines send says so (RFC 3834), lest two of them answer each other for ever.
"""

from __future__ import annotations

import base64
import hashlib
import re
from email.errors import MessageError
from email.headerregistry import BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import SMTP, Policy
from email.utils import format_datetime, getaddresses

from twelvefold.ports import Letter, NotSent
from twelvefold.text import clean, one_line

from .html import page

ADDRESS = re.compile(r"[!#-'*+\-/-9=?A-Z^-~.]{1,64}@[A-Za-z0-9.-]{1,253}")
_ID = re.compile(r"<[!-;=?-~]{1,900}>")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_OURS = re.compile(
    r"from|sender|to|cc|bcc|subject|date|message-id|in-reply-to|references|auto-submitted|x-auto-response-suppress|"
    r"x-loop|return-path|received|mime-version|content-.*|resent-.*",
    re.IGNORECASE,
)
MOST_RECIPIENTS = 10
_CHAIN = 20
_SUBJECT = 200


class _Ids(UnstructuredHeader, BaseHeader):
    """Message ids, one on each line: the standard folding would break a long id in two or encode it."""

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: " + f"{policy.linesep} ".join(str(self).split(" ")) + policy.linesep


_REGISTRY = HeaderRegistry()
for _name in ("message-id", "in-reply-to", "references", "list-unsubscribe"):
    _REGISTRY.map_to_type(_name, _Ids)
_POLICY = SMTP.clone(header_factory=_REGISTRY)


def message_id(delivery_id: str, domain: str) -> str:
    """The Message-ID of a delivery, the same at every attempt to send it."""
    digest = hashlib.sha256(b"msgid\0" + delivery_id.encode()).digest()
    return f"<{base64.b32encode(digest[:15]).decode().lower()}@{domain}>"


def compose(letter: Letter, sender: str, domain: str) -> bytes:
    """The letter as it goes over the line; the same letter gives the same bytes. Raises NotSent, never to be retried.

    A line end in a header is refused, not mended: whoever wrote it tried to write a header of their own.
    """
    _refuse_line_ends(letter)
    try:
        message = _message(letter, sender, domain)
        raw = message.as_bytes()
    except (ValueError, LookupError, TypeError, AttributeError, MessageError) as error:
        # The standard library's parsers fail in many ways on a strange header; in none of them anything went out.
        raise NotSent(f"The letter cannot be written as a mail: {type(error).__name__}.", retry=False) from error
    if BytesHeaderParser().parsebytes(raw).keys() != message.keys():
        raise NotSent("The headers of the letter do not read back as they were meant.", retry=False)
    return raw


def _message(letter: Letter, sender: str, domain: str) -> EmailMessage:
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = ", ".join(addresses(letter.recipient))
    message["Subject"] = one_line(letter.subject, _SUBJECT)
    message["Date"] = format_datetime(letter.created_at)
    message["Message-ID"] = message_id(letter.id, domain)
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message["X-Loop"] = domain
    ours = [message_id(earlier, domain) for earlier in letter.follows]
    chain = _chain([*letter.references, *ours, letter.in_reply_to or ""])
    answered = letter.in_reply_to or (ours[-1] if ours else "")
    if _ID.fullmatch(answered):
        message["In-Reply-To"] = answered
    if chain:
        message["References"] = " ".join(chain)
    for name, value in letter.headers.items():
        if not _HEADER_NAME.fullmatch(name) or _OURS.fullmatch(name) or name in message:
            raise NotSent(f"The header {clean(name)!r} cannot be set on a letter: the channel writes it.", retry=False)
        message[name] = ", ".join(addresses(value)) if name.lower() == "reply-to" else one_line(value, 900)
    message.set_content(clean(letter.text), cte="quoted-printable")
    if letter.source:
        message.add_alternative(page(letter.source, message["Subject"]), subtype="html", cte="quoted-printable")
        message.set_boundary(f"={message_id(letter.id, domain)[1:25]}=")
    return message


def addresses(recipient: str) -> list[str]:
    """The bare addresses in `ann@a.example, Ben <ben@b.example>`. Raises NotSent when one is no address."""
    found = [address for _, address in getaddresses([recipient])]
    if len(found) > MOST_RECIPIENTS:
        raise NotSent(f"A letter goes to at most {MOST_RECIPIENTS} people; write one to each instead.", retry=False)
    if not found or not all(ADDRESS.fullmatch(address) for address in found):
        raise NotSent(
            f"{clean(recipient)!r} is no mail address. Write it like ann@example.com, in ASCII, several by commas.",
            retry=False,
        )
    return found


def _refuse_line_ends(letter: Letter) -> None:
    fields = {"subject": letter.subject, "recipient": letter.recipient, "in_reply_to": letter.in_reply_to or ""}
    fields |= {"references": "".join(letter.references)}
    fields |= {f"header {clean(name)!r}": name + value for name, value in letter.headers.items()}
    for field, value in fields.items():
        if "\r" in value or "\n" in value:
            raise NotSent(f"The {field} of the letter has a line end in it and would write a header.", retry=False)


def _chain(given: list[str]) -> list[str]:
    """The ids of the conversation, oldest first, the first one and the last ones where there are too many."""
    chain = list(dict.fromkeys(id_ for id_ in given if _ID.fullmatch(id_)))
    return chain if len(chain) <= _CHAIN else [chain[0], *chain[1 - _CHAIN :]]
