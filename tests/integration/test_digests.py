"""Digests can be left by one click, as RFC 8058 has it; opening the link ends nothing, nobody leaves for another."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from console import leave
from tests.asked import SECRET, URL, Mailbox
from tests.harness import Fleet, fleet
from twelvefold import Done, Text
from twelvefold.bindings import to
from workers import leaving
from workers.addresses import read_bounce, read_reply
from workers.leaving import Reader
from workers.relay import deliver


def test_a_digest_is_left_by_one_click_and_by_nothing_less(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), public_url=URL, link_secrets=(SECRET,)) as f:
        ways = [to.digest("ann@example.com"), to.digest("ben@example.com"), to.email("ben@example.com")]
        known = f.run.registry.loaded["notes"]
        monkeypatch.setitem(f.run.registry.loaded, "notes", replace(known, agent=replace(known.agent, delivery=ways)))
        first = _sent(f)
        ann, ben = first["ann@example.com"], first["ben@example.com"]
        assert ben["List-Unsubscribe"] is None, "whoever also gets it as a plain letter has nothing to leave"
        assert ann["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        address = str(ann["List-Unsubscribe"])
        found = re.fullmatch(r"<https://fleet\.example(/u/v1\.[\w-]+\.[\w-]+)>", address)
        assert found is not None and address[1:-1] in str(ann.get_body(("plain",)).get_content())
        client = TestClient(Starlette(routes=leave.routes(f.run.db, f.settings)))
        path = found[1]
        for _ in range(2):
            assert client.get(path).status_code == client.head(path).status_code == 200
        assert client.post(path, content="").status_code == 400
        broken = path[:-2] + ("AA" if path[-2:] != "AA" else "BB")
        assert client.post(broken, data={"List-Unsubscribe": "One-Click"}).status_code == 404
        assert set(_sent(f)) == {"ann@example.com", "ben@example.com"}, "nothing has ended yet"
        answer = client.post(path, data={"List-Unsubscribe": "One-Click"}, follow_redirects=False)
        assert answer.status_code == 200 and "set-cookie" not in answer.headers
        assert set(_sent(f)) == {"ben@example.com"}
        assert "wants no more digests" in f.one("SELECT error FROM outbox WHERE state = 'failed'")


def _sent(f: Fleet) -> dict[str, Any]:
    """What one more task sends, by recipient."""
    f.drain(f.open())
    box = Mailbox()
    for row in f.run.db.rows("SELECT id::text FROM outbox WHERE state = 'pending' ORDER BY n"):
        deliver(row["id"], f.run, {"email": box})
    return {str(mail["To"]): mail for mail in box.mails}


def test_an_address_to_leave_speaks_for_one_reader_of_one_agent(fresh_database: Any) -> None:
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), public_url=URL, link_secrets=(SECRET,)) as f:
        reader = Reader(tenant="t1", agent="notes", recipient="ann@example.com")
        address = leaving.address(f.settings, reader)
        assert address is not None and leaving.read(f.settings, address.rpartition("/")[2]) == reader
        for token in ("", "v1", "v1.a.b", address.rpartition("/")[2] + "x", "v1.e30.e30"):
            assert leaving.read(f.settings, token) is None


def test_b137_a_mail_names_our_ids_and_is_answered_and_bounces_at_signed_addresses(fresh_database: Any) -> None:
    with fleet(
        fresh_database, lambda task: Done(outcome=Text(text="x")), public_url=URL, link_secrets=(SECRET,),
        mail_in_domain="in.fleet.example",
    ) as f:  # fmt: skip
        f.drain(f.open())
        box, row = Mailbox(), f.run.db.rows("SELECT id::text, recipient FROM outbox WHERE channel = 'email'")[0]
        assert deliver(row["id"], f.run, {"email": box}) == "sent"
        mail, letter = box.mails[0], box.letters[0]
        assert read_reply(f.settings, str(mail["Reply-To"]), row["recipient"]) == row["id"]
        assert read_reply(f.settings, str(mail["Reply-To"]), "mallory@example.com") is False
        assert read_bounce(f.settings, letter.bounces) == row["id"]
        again = replace(letter, id="next", follows=(letter.id,))
        box.push(again)
        assert box.mails[1]["In-Reply-To"] == box.mails[1]["References"] == mail["Message-ID"]
