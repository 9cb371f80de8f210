"""Signatures that are checked with the sender's public key: Ed25519 (Standard Webhooks `v1a`) and ECDSA (SendGrid).

Keys and signatures are text as their senders write them; what cannot be read is no signature, never an error.
"""

from __future__ import annotations

import base64
from binascii import Error as NotBase64

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from twelvefold.errors import DeclarationError

ED25519 = "whpk_"
"""What an Ed25519 public key of Standard Webhooks begins with."""


def ed25519(key: str, signature: str, message: bytes) -> bool:
    """Whether the holder of this key (`whpk_` and base64) signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(_bytes(key.removeprefix(ED25519))).verify(_bytes(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def ecdsa(key: str, signature: str, message: bytes) -> bool:
    """Whether the holder of this key (base64 of DER, as SendGrid shows it) signed the message, with SHA-256."""
    try:
        _curve(key).verify(_bytes(signature), message, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def check(key: str) -> None:
    """Raise DeclarationError when the key cannot be read."""
    try:
        if key.startswith(ED25519):
            Ed25519PublicKey.from_public_bytes(_bytes(key.removeprefix(ED25519)))
        else:
            _curve(key)
    except ValueError:
        raise DeclarationError(
            "That is no public key. Give whpk_ and base64 for Ed25519, or the base64 of DER that SendGrid shows."
        ) from None


def _curve(key: str) -> ec.EllipticCurvePublicKey:
    try:
        found = load_der_public_key(_bytes(key))
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, ec.EllipticCurvePublicKey):
        raise ValueError("no key on an elliptic curve")
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except NotBase64 as error:  # a ValueError too, but not for text beyond ASCII
        raise ValueError(str(error)) from None
