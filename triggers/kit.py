"""What an adapter of anybody's has to hold, as one function that its author calls in a test: `kit.check(make, sample)`.

It needs no network, no database and no test framework; what does not hold is an AssertionError that says what to mend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .adapter import Adapter, Delivery, Received, Unverified
from .problem import Problem
from .senders import Make

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
LONGEST = 255
NONSENSE = (b"", b"\x00", b"\xff\xfe", b"null", b"[]", b'"text"', b"{}", b"--x\r\n", b"[" * 10_000)


@dataclass(frozen=True, slots=True)
class Sample:
    """One delivery as the sender would make it: `headers(body, secret, at)` signs it. `key` and `type` are what has to
    come out. `stamped`: the sender signs the time, so that an old delivery is to be refused.
    """

    body: bytes
    headers: Callable[[bytes, str, datetime], Mapping[str, str]]
    key: str
    type: str
    secrets: tuple[str, str] = ("the newer secret of the kit", "the older secret of the kit")
    stamped: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


def check(make: Make, sample: Sample) -> None:
    """Hold the adapter that `make` makes against everything an adapter has to hold."""
    adapter = make(sample.options, sample.secrets)
    _lets_in_what_is_genuine(adapter, make, sample)
    _keeps_out_the_rest(adapter, sample)
    _translates(adapter, sample)
    _survives(adapter, sample)


def received(sample: Sample, secret: str, at: datetime = NOW, body: bytes | None = None) -> Received:
    """The sample as it reaches us, signed with this secret at that time."""
    sent = sample.body if body is None else body
    return Received("kit", sent, tuple(sample.headers(sent, secret, at).items()), NOW)


def _lets_in_what_is_genuine(adapter: Adapter, make: Make, sample: Sample) -> None:
    proofs = [adapter.verify(received(sample, secret)) for secret in sample.secrets]
    assert len(set(proofs)) == 2, f"The proof says which secret it was, so that one can be retired: {proofs}"
    assert not any(s in text for s in sample.secrets for text in (*proofs, repr(adapter))), "A secret is shown."
    lower = received(sample, sample.secrets[0])
    lower = Received("kit", lower.raw, tuple((name.lower(), value) for name, value in lower.headers), NOW)
    assert adapter.verify(lower), "Names of headers come in any case."
    newer_only = make(sample.options, sample.secrets[:1])
    _refused(newer_only, received(sample, sample.secrets[1]), "a secret that was removed")


def _keeps_out_the_rest(adapter: Adapter, sample: Sample) -> None:
    good = received(sample, sample.secrets[0])
    _refused(adapter, received(sample, "a secret of nobody"), "another secret")
    _refused(adapter, Received("kit", good.raw, (), NOW), "no headers at all")
    _refused(adapter, Received("kit", good.raw, good.headers * 2, NOW), "every header twice")
    for name, _ in good.headers:
        odd = tuple((n, "\ud83dé" if n == name else value) for n, value in good.headers)
        _refused(adapter, Received("kit", good.raw, odd, NOW), f"nonsense in {name}")
    for at in range(0, len(good.raw), max(1, len(good.raw) // 50)):
        flipped = good.raw[:at] + bytes([good.raw[at] ^ 1]) + good.raw[at + 1 :]
        _refused(adapter, Received("kit", flipped, good.headers, NOW), f"byte {at} of the body changed")
    if sample.stamped:
        for seconds in (-86_400, 86_400):
            at_another = NOW + timedelta(seconds=seconds)
            _refused(adapter, received(sample, sample.secrets[0], at_another), f"a time {seconds} s from ours")


def _refused(adapter: Adapter, what: Received, why: str) -> None:
    try:
        proof = adapter.verify(what)
    except Unverified:
        return
    except Exception as error:
        raise AssertionError(f"{why}: raise Unverified, not {type(error).__name__}") from error
    raise AssertionError(f"{why}: this was let in, as {proof}")


def _translates(adapter: Adapter, sample: Sample) -> None:
    first, again = (adapter.translate(received(sample, sample.secrets[0], NOW + timedelta(seconds=s))) for s in (0, 60))
    assert (first.key, first.type) == (sample.key, sample.type), f"It came out as {first.key!r}, {first.type!r}."
    assert first == again, "The same delivery at a second attempt is the same fact."
    _fits(first)


def _survives(adapter: Adapter, sample: Sample) -> None:
    """A signed body is no promise that it makes sense."""
    for body in NONSENSE:
        what = received(sample, sample.secrets[0], body=body)
        try:
            _fits(adapter.translate(what))
        except Problem as problem:
            assert 400 <= problem.status < 500, f"{body[:20]!r}: a sender's mistake is answered with 4xx"
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{body[:20]!r}: raise Problem(400, …), not {type(error).__name__}") from error


def _fits(said: Delivery) -> None:
    assert 0 < len(said.key) <= LONGEST, f"A key has 1 to {LONGEST} characters, not {len(said.key)}."
    assert 0 < len(said.type) <= LONGEST, f"A type has 1 to {LONGEST} characters, not {len(said.type)}."
    json.dumps(said.payload, default=str, allow_nan=False)
