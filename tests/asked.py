"""A question asked by mail, for tests: the letter as it went out, and hands for the page that its link opens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any

import httpx2
from pydantic import SecretStr
from starlette.applications import Starlette

from console import approve
from delivery.log import LogChannel
from delivery.mime import compose, message_id
from tests.agents.signoff.tools import Ship
from tests.hands import once
from tests.harness import Fleet, fleet
from twelvefold.ports import Letter, Receipt
from workers.links import from_settings
from workers.relay import deliver

URL = "https://fleet.example"
DOMAIN = "fleet.example"
SECRET = SecretStr("a secret of at least 32 characters")
LINK = re.compile(r"https://fleet\.example/a/(\S+)")
WORD = re.compile(r"asks for this word: (\w+)")


@dataclass
class Mailbox:
    """A channel that keeps every letter, as bytes that a mail program would read."""

    letters: list[Letter] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """What the log channel wrote beside it."""

    def push(self, letter: Letter) -> Receipt:
        """Keep it."""
        self.letters.append(letter)
        self.raw.append(compose(letter, "Fleet <fleet@fleet.example>", DOMAIN))
        return Receipt(message_id(letter.id, DOMAIN))

    @property
    def mails(self) -> list[EmailMessage]:
        """As a mail program reads them."""
        found = [message_from_bytes(raw, policy=default) for raw in self.raw]
        return [mail for mail in found if isinstance(mail, EmailMessage)]


@dataclass
class Asked:
    """A fleet whose task waits for a signature, and what went out about it."""

    fleet: Fleet
    task: str
    box: Mailbox
    rung: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        """The page's application."""
        links = from_settings(self.fleet.settings)
        run = self.fleet.run
        return Starlette(routes=approve.routes(run.db, links, lambda *told: self.rung.append(told), run.log))

    def deliver(self) -> None:
        """Send what is due."""
        send(self.fleet, self.box)

    def text(self, to: str = "ann@example.com") -> str:
        """The text of the last mail to somebody."""
        mail = [mail for mail in self.box.mails if mail["To"] == to][-1]
        body = mail.get_body(("plain",))
        assert body is not None
        return str(body.get_content())

    def path(self, to: str = "ann@example.com") -> str:
        """The path of the link in the last mail to somebody."""
        return f"/a/{LINK.findall(self.text(to))[-1]}"

    def word(self, to: str = "ann@example.com") -> str:
        """The word in the last mail to somebody."""
        return str(WORD.findall(self.text(to))[-1])

    def get(self, path: str | None = None, method: str = "GET") -> httpx2.Response:
        """Open the page."""
        return self.all([(method, path or self.path(), None)])[0]

    def post(self, to: str = "ann@example.com", **form: str) -> httpx2.Response:
        """Fill in the form of somebody's page and send it; a field that is empty is left out."""
        return self.all([("POST", self.path(to), self.form(to, **form))])[0]

    def form(self, to: str = "ann@example.com", **form: str) -> dict[str, str]:
        """The form as that person sends it, with the word unless another is given."""
        shown = fields(self.get(self.path(to)).text)
        found = {"decision": "approve"} | {n: str(f["value"]) for n, f in shown.items() if f.get("type") == "hidden"}
        if WORD.search(self.text(to)):
            found["word"] = self.word(to)
        return {name: value for name, value in {**found, **form}.items() if value}

    def all(self, requests: Sequence[tuple[str, str, dict[str, str] | None]], **headers: str) -> list[httpx2.Response]:
        """Send all of the requests at one moment."""

        return at_once(self.app, requests, **headers)

    def dump(self) -> dict[str, Any]:
        """Every row of every table."""
        tables = self.fleet.run.db.rows(
            "SELECT table_name AS name FROM information_schema.tables"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1"
        )
        with self.fleet.run.db.connection() as connection:
            return {
                t["name"]: sorted(map(repr, connection.execute(f'SELECT * FROM "{t["name"]}"').fetchall()))
                for t in tables
                if t["name"] != "tokens"  # hashes of other secrets, which this role reads one by one
            }


def at_once(
    app: Starlette, requests: Sequence[tuple[str, str, dict[str, str] | None]], **headers: str
) -> list[httpx2.Response]:
    """What an application answers to all of the requests, sent at one moment."""

    async def send() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=URL, headers=headers) as client:
            return await asyncio.gather(*(client.request(m, p, data=form) for m, p, form in requests))

    return asyncio.run(send())


def send(f: Fleet, box: Mailbox) -> None:
    """Send what is due, in order."""
    while rows := f.run.db.rows("SELECT id::text FROM outbox WHERE state = 'pending' ORDER BY n, recipient LIMIT 1"):
        assert deliver(rows[0]["id"], f.run, {"email": box, "log": LogChannel(box.lines.append)}) == "sent"


@contextmanager
def asked(database: Any, call: Ship, *, links: bool = True, **change: Any) -> Iterator[Asked]:
    """A task that asks whether it may ship, with its letters delivered."""
    configured = {"public_url": URL, "link_secrets": (SECRET,)} if links else {}
    with fleet(database, once(call), **configured, **change) as f:
        task = f.open("signoff")
        assert f.drain(task) == "waiting"
        found = Asked(f, task, Mailbox())
        found.deliver()
        yield found


class _Fields(HTMLParser):
    """The fields of a page's form, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str | None]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "input":
            self.found[str(found.get("name"))] = found


def fields(html: str) -> dict[str, dict[str, str | None]]:
    """The input fields of a page."""
    parser = _Fields()
    parser.feed(html)
    return parser.found


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """Every tag of a page with its attributes, as a browser's parser sees them."""
    parser = _Fields()
    parser.feed(html)
    return parser.tags


def digest(html: str) -> str:
    """The hidden digest of a page; empty when it has no form."""
    return fields(html).get("digest", {}).get("value") or ""
