"""A fresh self-signed certificate for localhost, made in memory: no key in the repository, no tool, no package.

ECDSA over P-256 (SEC 1) in an X.509 certificate (RFC 5280), good for the loopback servers of tests and nothing else:
the arithmetic does not run in constant time.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None


def self_signed(host: str = "localhost") -> tuple[str, str]:
    """Certificate and private key as PEM; the certificate is its own authority, so a client can trust it by name."""
    key = secrets.randbelow(_N - 1) + 1
    point = b"\x04" + b"".join(part.to_bytes(32, "big") for part in _times(key, _G) or ())
    to_sign = _to_be_signed(host, point)
    certificate = _sequence(to_sign, _ECDSA_SHA256, _bits(_signature(key, to_sign)))
    private = _sequence(_integer(1), _der(0x04, key.to_bytes(32, "big")), _der(0xA0, _P256), _der(0xA1, _bits(point)))
    return _pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", private)


def _to_be_signed(host: str, point: bytes) -> bytes:
    name = _sequence(_der(0x31, _sequence(_oid("550403"), _der(0x0C, host.encode()))))
    now = datetime.now(UTC)
    validity = _sequence(*(_time(now + timedelta(days=days)) for days in (-1, 30)))
    key = _sequence(_sequence(_oid("2a8648ce3d0201"), _P256), _bits(point))
    extensions = _sequence(
        _extension("551d13", True, _sequence(_der(0x01, b"\xff"))),
        _extension("551d0f", True, b"\x03\x02\x02\x84"),
        _extension("551d0e", False, _der(0x04, hashlib.sha256(point).digest()[:20])),
        _extension("551d11", False, _sequence(_der(0x82, host.encode()), _der(0x87, b"\x7f\0\0\1"))),
    )
    serial = _integer(secrets.randbits(120))
    version = _der(0xA0, _integer(2))
    return _sequence(version, serial, _ECDSA_SHA256, name, validity, name, key, _der(0xA3, extensions))


def _signature(key: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = secrets.randbelow(_N - 1) + 1
    r = (_times(nonce, _G) or (0, 0))[0] % _N
    return _sequence(_integer(r), _integer(pow(nonce, -1, _N) * (digest + r * key) % _N))


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % _P == 0:
        return None
    rise, run = (3 * a[0] * a[0] - 3, 2 * a[1]) if a == b else (b[1] - a[1], b[0] - a[0])
    slope = rise * pow(run, -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes((tag, len(body))) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _integer(number: int) -> bytes:
    return _der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(body: bytes) -> bytes:
    return _der(0x03, b"\0", body)


def _oid(encoded: str) -> bytes:
    return _der(0x06, bytes.fromhex(encoded))


def _time(at: datetime) -> bytes:
    return _der(0x17, at.strftime("%y%m%d%H%M%SZ").encode())


def _extension(oid: str, critical: bool, body: bytes) -> bytes:
    return _sequence(_oid(oid), *([_der(0x01, b"\xff")] if critical else []), _der(0x04, body))


def _pem(label: str, body: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(body).decode()}-----END {label}-----\n"


_P256 = _oid("2a8648ce3d030107")
_ECDSA_SHA256 = _sequence(_oid("2a8648ce3d040302"))
