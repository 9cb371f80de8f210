"""A trigger that somebody else ships: found by its entry point, held by the kit, used by a declaration alone."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from console.sources import sources
from tests.fakes.ticketing import Tickets
from triggers import kit
from triggers.adapter import Delivery, Received, Source
from triggers.envelope import Arrived, Verdict
from triggers.source import json_of, key_of
from triggers.webhook import routes
from workers.settings import load

BODY = b'{"ticket": 7, "what": "opened"}'
ADAPTER = Path(__file__).parents[1] / "fakes" / "ticketing.py"


def signed(body: bytes, secret: str, at: datetime) -> Mapping[str, str]:
    stamp = str(int(at.timestamp()))
    return {"X-Tickets": f"{stamp} {hmac.digest(secret.encode(), stamp.encode() + body, 'sha256').hex()}"}


SAMPLE = kit.Sample(BODY, signed, key="opened:7", type="ticket.opened", options={"kind": "ticket"})


class Careless:
    """An adapter that does one thing wrong, as `fault` says."""

    def __init__(self, fault: str, options: Mapping[str, Any], secrets: tuple[str, ...]) -> None:
        self.fault, self.good = fault, Tickets(options, secrets)

    def __repr__(self) -> str:
        return str(self.good._secrets) if self.fault == "shows" else "careless"

    def verify(self, received: Received) -> str:
        if self.fault == "open":
            return "nobody#0"
        if self.fault == "raises" and not received.headers:
            raise KeyError("X-Tickets")
        if self.fault == "old":
            return self.good.verify(Received("kit", received.raw, received.headers, self.good.time(received)))
        return self.good.verify(received) if self.fault != "vague" else self.good.verify(received)[:-1]

    def translate(self, received: Received) -> Delivery:
        if self.fault == "crashes":
            return Delivery(json_of(received)["ticket"], "ticket.opened", {})
        if self.fault == "restless":
            return Delivery(key_of(received.header("X-Tickets").split(" ")[0], "it"), "ticket.opened", {})
        return self.good.translate(received)


def test_an_adapter_that_holds_the_contract_passes_the_kit() -> None:
    kit.check(Tickets, SAMPLE)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("open", "proof says which"), ("raises", "raise Unverified"), ("old", "let in"), ("vague", "which secret"),
        ("crashes", "Problem|came out"), ("restless", "came out"), ("shows", "secret is shown"),
    ],
)  # fmt: skip
def test_the_kit_finds_what_an_adapter_does_wrong(fault: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        kit.check(lambda options, secrets: Careless(fault, options, secrets), SAMPLE)


def test_a_trigger_of_a_third_party_needs_no_change_in_our_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ticketing.py").write_text(ADAPTER.read_text())
    info = tmp_path / "ticketing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ticketing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[twelvefold.triggers]\ntickets = ticketing:Tickets\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    secret = "the secret of the ticketing"
    settings = load({
        "DATABASE_URL": "postgresql://a@localhost/x", "BROKER_URL": "redis://localhost/0",
        "TWELVEFOLD_WEBHOOK_SOURCES": '{"desk": {"scheme": "tickets", "options": {"kind": "ticket"}}}',
        "DESK_WEBHOOK_SECRETS": secret,
    })  # fmt: skip
    arrived: list[Arrived] = []

    def accept(what: Arrived) -> Verdict:
        arrived.append(what)
        return Verdict("accepted")

    app = Starlette(routes=routes(sources(settings), accept, lambda: kit.NOW))
    with TestClient(app) as client:
        good = client.post("/hooks/desk", content=BODY, headers=dict(signed(BODY, secret, kit.NOW)))
        bad = client.post("/hooks/desk", content=BODY, headers=dict(signed(BODY, "another", kit.NOW)))
    sys.modules.pop("ticketing", None)
    assert (good.status_code, bad.status_code) == (200, 401)
    (one,) = arrived
    assert (one.source, one.key, one.type, one.tenant, one.proof) == (
        "desk", "opened:7", "ticket.opened", "default", "tickets#0",
    )  # fmt: skip


def test_an_adapter_that_breaks_is_answered_as_ours_to_mend(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def verify(self, received: Received) -> str:
            return "any#0"

        def translate(self, received: Received) -> Delivery:
            raise KeyError(received.raw.decode())

    broken = {"x": Source("t", Broken(), Broken())}
    app = Starlette(routes=routes(broken, lambda _: Verdict("accepted"), lambda: kit.NOW))
    with TestClient(app) as client:
        answer = client.post("/hooks/x", content=b"a private word")
    assert (answer.status_code, "private" in answer.text + caplog.text) == (503, False)
