"""Bounces: which addresses a mail could not be delivered to, and whether for good (RFC 3464, and older forms)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message

from pydantic import BaseModel, ConfigDict

from .mail_judge import addresses

_IDS = re.compile(r"<[^<>\s]{1,900}>")
MOST = 50


class Bounced(BaseModel):
    """One address that was not reached; `permanent` says for good."""

    model_config = ConfigDict(frozen=True)

    address: str
    permanent: bool


def bounced(message: Message) -> tuple[Bounced, ...]:
    """The failures that a report tells; none where it tells that a mail arrived, or nothing that can be understood."""
    reports = [part for part in message.walk() if part.get_content_type() == "message/delivery-status"]
    found = [failure for report in reports for failure in _failures(report)]
    return tuple(dict.fromkeys(found))[:MOST] if reports and found else _odd(message)


def returned(message: Message) -> tuple[str, ...]:
    """The Message-IDs of the mails that a report returns, whole or only their headers."""
    found: list[str] = []
    for part in message.walk():
        kind = part.get_content_type()
        inside = part.get_payload() if kind == "message/rfc822" else None
        if isinstance(inside, list) and isinstance(inside[0], Message):
            found += _IDS.findall(str(inside[0]["Message-ID"] or ""))
        elif kind == "text/rfc822-headers":
            text = str(part.get_payload())
            found += [i for line in re.findall(r"(?im)^message-id:[^\n]*(?:\n[ \t][^\n]*)*", text)
                      for i in _IDS.findall(line)]  # fmt: skip
    return tuple(dict.fromkeys(found))[:MOST]


def _failures(report: Message) -> Iterator[Bounced]:
    blocks = report.get_payload()
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, Message):
            continue
        action = str(block["Action"] or "").strip().lower()
        status = str(block["Status"] or "").strip()
        who = str(block["Final-Recipient"] or block["Original-Recipient"] or "").partition(";")[2]
        if action in ("failed", "delayed"):
            permanent = action == "failed" and not status.startswith("4")
            yield from (Bounced(address=address, permanent=permanent) for address in addresses(who))


def _odd(message: Message) -> tuple[Bounced, ...]:
    from flufl.bounce import all_failures  # of the group mail-in

    if not addresses(str(message["From"] or "")):
        return ()  # its readers expect a sender, and complain in the log
    try:
        temporary, permanent = all_failures(message)
    except Exception:  # its many readers meet forms that nobody has seen; a bounce that is not understood is none
        return ()
    found = [(each, False) for each in temporary] + [(each, True) for each in permanent]
    pairs = [(each.decode("ascii", "replace") if isinstance(each, bytes) else str(each), sure) for each, sure in found]
    return tuple(Bounced(address=address.lower(), permanent=sure) for address, sure in sorted(pairs))[:MOST]
