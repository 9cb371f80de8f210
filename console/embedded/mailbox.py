"""A page to read the mails that the catcher has caught. Mails are text from anywhere: everything is escaped, only web
links in the text become links, and they take no referrer along.
"""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.page import page

SHOWN = ("From", "To", "Date", "Message-ID", "In-Reply-To", "References", "Auto-Submitted")
MOST = 200
_LINK = re.compile(r"https?://[^\s<>\"']+")


def routes(folder: Path) -> list[Route]:
    """The list, newest first, and each mail by its number: `folder` holds `000001.eml` and so on."""

    def index(request: Request) -> Response:
        rows = "".join(
            f"<section><p><a href='{number}'>{_header(message, 'Subject') or '(no subject)'}</a><br>"
            f"to {_header(message, 'To')}, {_header(message, 'Date')}</p></section>"
            for number, message in _newest(folder)
        )
        return page("Mails", rows or "<p>None yet. Nothing leaves this machine: every mail ends here.</p>")

    def one(request: Request) -> Response:
        path = folder / f"{request.path_params['number']:06}.eml"
        if not path.is_file():
            return page("No such mail", "<p><a href='./'>All mails</a></p>", 404)
        message = _read(path)
        facts = "".join(f"<dt>{name}</dt><dd>{_header(message, name)}</dd>" for name in SHOWN if message[name])
        body = f"<p><a href='./'>All mails</a></p><dl>{facts}</dl><pre>{_linked(_text(message))}</pre>"
        return page(str(message["Subject"] or "(no subject)"), body)

    return [Route("/", index), Route("/{number:int}", one)]


def _newest(folder: Path) -> Iterator[tuple[int, EmailMessage]]:
    for path in sorted(folder.glob("[0-9]*.eml"), reverse=True)[:MOST]:
        yield int(path.stem), _read(path)


def _read(path: Path) -> EmailMessage:
    return email.message_from_bytes(path.read_bytes(), policy=email.policy.default)


def _header(message: EmailMessage, name: str) -> str:
    return escape(str(message[name] or ""))


def _text(message: EmailMessage) -> str:
    """The plain text; where there is only HTML, its source."""
    body = message.get_body(("plain", "html"))
    content = body.get_content() if body is not None else ""
    return content if isinstance(content, str) else ""


def _linked(text: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _LINK.finditer(text):
        link = escape(found[0])
        parts += [escape(text[at : found.start()]), f"<a href='{link}' rel='noreferrer noopener'>{link}</a>"]
        at = found.end()
    return "".join([*parts, escape(text[at:])])
