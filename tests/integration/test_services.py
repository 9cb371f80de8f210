"""Services by name: declared by the agent, placed by the operator, and never an address in log or prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.fakes.http_service import FakeService
from tests.unit.test_settings import ENOUGH
from twelvefold import Fatal
from workers.outside import client
from workers.services import parse, placed
from workers.settings import ConfigurationError, load


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The outside."""
    with FakeService() as made:
        yield made


def post(hosts: tuple[str, ...], services: dict[str, str], url: str) -> Any:
    """Post an effect through the guarded client."""
    with client(hosts, services, 5, lambda: True) as http:
        return http.post(url, json={}, headers={"Idempotency-Key": "k"})


def test_a_declared_service_is_reached_where_the_operator_placed_it(service: FakeService) -> None:
    answer = post(("pipeline",), {"pipeline": f"{service.address}/"}, "http://pipeline/effects")
    assert answer.status_code == 200
    assert [begun.key for begun in service.begun] == ["k"]


def test_a_service_that_is_placed_but_not_declared_is_refused(service: FakeService) -> None:
    with pytest.raises(Fatal, match="not declared"):
        post(("stock",), {"pipeline": service.address}, "http://pipeline/effects")
    assert service.begun == []


def test_a_path_stands_below_the_path_of_its_place() -> None:
    services = {"pipeline": "https://ci.example:8443/v2/"}
    url = httpx2.URL("http://pipeline/deployments/a%2Fb?since=1")
    assert str(placed(url, services)) == "https://ci.example:8443/v2/deployments/a%2Fb?since=1"
    other = httpx2.URL("http://stock/x")
    assert placed(other, services) is other


def test_the_setting_is_a_list_of_pairs() -> None:
    settings = load({**ENOUGH, "TWELVEFOLD_SERVICES": "pipeline=http://10.0.0.5:8080/v2, stock=https://stock"})
    assert settings.services == {"pipeline": "http://10.0.0.5:8080/v2", "stock": "https://stock"}
    assert parse({"a": "http://b"}) == {"a": "http://b"}


@pytest.mark.parametrize(
    "wrong",
    [
        "pipeline",
        "=http://x",
        "Pipeline=http://x",
        "p=ftp://x",
        "p=http://",
        "p=http://u:p@x",
        "p=http://x?a=1",
    ],
)
def test_a_wrong_pair_is_told_with_an_example(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"TWELVEFOLD_SERVICES.*NAME=URL.*Example"):
        load({**ENOUGH, "TWELVEFOLD_SERVICES": wrong})
