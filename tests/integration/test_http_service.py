"""The fake outside service keeps its word: one effect per key, and every fault does what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.fakes.http_service import FakeService
from tests.fakes.loopback import until_true

BODY = {"amount": "12.50"}


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as threads:
        yield threads


def post(http: httpx2.Client, service: FakeService, key: str = "k1", body: Any = BODY, **more: Any) -> httpx2.Response:
    return http.post(service.url, json=body, headers={"Idempotency-Key": key}, **more)


def test_one_effect_per_key_and_the_same_result_each_time(http: httpx2.Client, service: FakeService) -> None:
    first, again, other = post(http, service), post(http, service), post(http, service, "k2")
    assert first.json() == again.json() == {"key": "k1", "number": 1, "body": BODY}
    assert other.json()["number"] == 2
    assert [(r.key, r.repeat) for r in service.requests] == [("k1", False), ("k1", True), ("k2", False)]
    assert list(service.effects) == ["k1", "k2"]
    times = [r.at for r in service.requests]
    assert times == sorted(times)


def test_twenty_posts_at_once_with_one_key_are_one_effect(
    http: httpx2.Client, service: FakeService, pool: ThreadPoolExecutor
) -> None:
    service.hold()
    asked = [pool.submit(post, http, service) for _ in range(20)]
    with service.waiting(20):
        assert service.effects == {}
    assert {future.result().json()["number"] for future in asked} == {1}
    assert [r.repeat for r in service.requests].count(False) == 1


def test_asking_whether_it_happened(http: httpx2.Client, service: FakeService) -> None:
    key = "step/7 é"
    assert http.get(service.url_of(key)).status_code == 404
    post(http, service, "other")
    assert http.get(service.url_of(key)).status_code == 404
    http.post(service.url, json=BODY, headers={"Idempotency-Key": "step/7"})
    found = http.get(service.url_of("step/7"))
    assert (found.status_code, found.json()["body"]) == (200, BODY)
    assert [b.method for b in service.begun] == ["GET", "POST", "GET", "POST", "GET"]
    assert service.begun[0].key == key


def test_a_key_is_needed_and_belongs_to_one_body(http: httpx2.Client, service: FakeService) -> None:
    assert http.post(service.url, json=BODY).status_code == 400
    assert http.post(service.url, content=b"{", headers={"Idempotency-Key": "k"}).status_code == 400
    assert http.post(f"{service.address}/other", json=BODY, headers={"Idempotency-Key": "k"}).status_code == 404
    post(http, service)
    assert post(http, service, body={"amount": "99"}).status_code == 422
    assert service.effects["k1"]["body"] == BODY


def test_failing_performs_nothing(http: httpx2.Client, service: FakeService) -> None:
    service.fail(503, 2)
    assert [post(http, service).status_code for _ in range(3)] == [503, 503, 200]
    assert len(service.begun) == 3
    assert [r.repeat for r in service.requests] == [False]


def test_a_dropped_answer_hides_an_effect_that_happened(http: httpx2.Client, service: FakeService) -> None:
    service.drop_answer()
    with pytest.raises(httpx2.RemoteProtocolError):
        post(http, service)
    assert http.get(service.url_of("k1")).status_code == 200
    assert post(http, service).json()["number"] == 1
    assert [r.repeat for r in service.requests] == [False, True]


def test_slow_performs_after_the_client_has_given_up(http: httpx2.Client, service: FakeService) -> None:
    service.slow(0.3)
    with pytest.raises(httpx2.ReadTimeout):
        post(http, service, timeout=0.05)
    assert http.get(service.url_of("k1")).status_code == 404, "an earlier 'not there' proves nothing"
    until_true(lambda: "k1" in service.effects)
    service.slow(0)
    assert post(http, service).json()["number"] == 1


def test_held_before_performing(http: httpx2.Client, service: FakeService, pool: ThreadPoolExecutor) -> None:
    service.hold()
    answer: Future[httpx2.Response] = pool.submit(post, http, service)
    with service.waiting(1):
        assert len(service.begun) == 1
        assert service.requests == []
        assert http.get(service.url_of("k1")).status_code == 404
    assert answer.result().status_code == 200


def test_held_after_performing(http: httpx2.Client, service: FakeService, pool: ThreadPoolExecutor) -> None:
    service.hold_after()
    answer: Future[httpx2.Response] = pool.submit(post, http, service)
    service.waiting(1)
    assert list(service.effects) == ["k1"]
    assert http.get(service.url_of("k1")).status_code == 200
    assert not answer.done()
    service.release()
    assert answer.result().json()["number"] == 1


def test_what_is_held_when_the_service_ends_never_happens(pool: ThreadPoolExecutor, http: httpx2.Client) -> None:
    with FakeService() as service:
        service.hold()
        answer = pool.submit(post, http, service)
        service.waiting(1)
    with pytest.raises(httpx2.TransportError):
        answer.result()
    assert service.effects == {}
    assert len(service.begun) == 1


def test_waiting_says_how_many_came(service: FakeService) -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="0 of 1 requests held"):
        service.waiting(1, timeout=0.05)
    assert time.monotonic() - began < 5
