"""Webhook sources besides GitHub as an operator declares them: one JSON object, every mistake told, no secret shown.

Each member is one source at `/hooks/{name}`: a sender that is known by name, or how its sender signs and where its
deliveries carry which name. The secrets stand apart, in the variable that `secrets_variable` names, so that the
declaration itself is no secret.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic import field_validator as check
from pydantic import model_validator as check_all

from twelvefold.errors import DeclarationError

from . import senders
from .adapter import Source, Translator
from .proofs import Signed
from .senders import Sender
from .signature import Scheme
from .source import POINTER, Pointed

RESERVED = frozenset({"github", "operate", "task", "delegate", "schedule", "api", "cli", "email", "slack", "trial"})
"""Names in `arrivals.source` that are ours: a sender who could use one could take the key of another arrival."""
SHORTEST_SECRET = 16
EXAMPLE = '{"shop": {"header": "X-Shop-Signature", "key_pointer": "/id", "type_pointer": "/event"}}'


def secrets_variable(name: str) -> str:
    """The variable with the secrets of this source, separated by commas, such as SHOP_WEBHOOK_SECRETS for `shop`."""
    return f"{name.upper().replace('-', '_')}_WEBHOOK_SECRETS"


def _name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name):
        raise ValueError("a source is named in lower-case letters, digits and hyphens, such as shop-orders")
    if name in RESERVED:
        raise ValueError(f"the name {name} is taken; github has a variable of its own, GITHUB_WEBHOOK_SECRETS")
    return name


def _strong(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < SHORTEST_SECRET:
        raise ValueError(f"a secret has at least {SHORTEST_SECRET} characters; make one with: openssl rand -hex 32")
    return secret


def _header(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", name):
        raise ValueError("that is no name of a header; write it like X-Shop-Signature")
    return name


def _pointer(pointer: str) -> str:
    if not POINTER.fullmatch(pointer):
        raise ValueError("that is no JSON pointer; write it like /data/order/id")
    return pointer


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object with one member for each source, such as {EXAMPLE}")
    return value


Secret = Annotated[SecretStr, AfterValidator(_strong)]
Header = Annotated[str, AfterValidator(_header)]
Pointer = Annotated[str, AfterValidator(_pointer)]


SIGNING = frozenset({"header", "prefix", "algorithm", "encoding", "timestamp_header", "signed"})
POINTED = ("key_pointer", "type_header", "type_pointer", "sender_pointer", "conversation_pointer")


class Declared(BaseModel):
    """One source. `scheme` is a sender that is known by name, or what an installed distribution offers, with `options`
    for it; with `hmac` the other fields say how the sender signs: those of `signature.Scheme` and `source.Pointed`, in
    words for an operator. `signed` is what is signed, `{body}` or for example `{timestamp}.{body}`. Without a named key
    a delivery is known by its bytes. `type` is the type of every delivery that names none; `tenant` the owner, if it is
    not that of the whole deployment; `test_events` lets in what is no live event.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: str = "hmac"
    header: Header | None = None
    prefix: str = ""
    algorithm: Literal["sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: Header | None = None
    signed: str = Field(default="{body}", validate_default=True)
    key_header: Header | None = None
    key_pointer: Pointer | None = None
    type_header: Header | None = None
    type_pointer: Pointer | None = None
    type: str = Field(default="event", min_length=1, max_length=255)
    sender_pointer: Pointer | None = None
    conversation_pointer: Pointer | None = None
    test_events: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    tenant: str | None = Field(default=None, min_length=1)
    secrets: tuple[Secret, ...]

    @check("signed")
    @classmethod
    def _protects(cls, signed: str, info: ValidationInfo) -> str:
        try:
            Scheme(header="X-Any", signed=signed, timestamp_header=info.data.get("timestamp_header"))
        except DeclarationError as error:
            raise ValueError(str(error)) from None
        return signed

    @check_all(mode="after")
    def _fits(self) -> Self:
        if self.scheme == "hmac" and self.header is None:
            raise ValueError("say in `header` where the signature is, or name a `scheme` such as stripe")
        if self.scheme != "hmac" and self.model_fields_set & SIGNING:
            raise ValueError(f"the scheme {self.scheme} says how it signs; {', '.join(sorted(SIGNING))} go with hmac")
        try:
            self.source("any")
        except DeclarationError as error:
            raise ValueError(str(error)) from None
        return self

    def source(self, tenant: str) -> Source:
        """The source as the webhooks take it, of this tenant where it declares none. Raises DeclarationError."""
        owner, secrets = self.tenant or tenant, tuple(secret.get_secret_value() for secret in self.secrets)
        if self.scheme == "hmac":
            assert self.header is not None
            scheme = Scheme(self.header, self.prefix, self.algorithm, self.encoding, self.timestamp_header, self.signed)
            return Source(owner, Signed("generic", secrets, (scheme,)), self._pointed(Pointed()))
        if self.scheme in senders.MAIL:
            return senders.of_mail(self.scheme, owner, secrets)
        sender = senders.preset(self.scheme)
        if sender is None:
            return senders.third_party(self.scheme, owner, self.options, secrets)
        return Source(owner, senders.verifier(self.scheme, sender, secrets), self._names(sender))

    def _names(self, sender: Sender) -> Translator:
        return self._pointed(sender.names) if isinstance(sender.names, Pointed) else sender.names

    def _pointed(self, names: Pointed) -> Pointed:
        """The names of a sender with what the operator declares in their place."""
        declared = {name: getattr(self, name) for name in POINTED if getattr(self, name) is not None}
        if self.key_header is not None:
            declared["key_headers"] = (self.key_header,)
        if "type" in self.model_fields_set:
            declared["default_type"] = self.type
        return replace(names, live_pointer=None if self.test_events else names.live_pointer, **declared)


Sources = Annotated[dict[Annotated[str, AfterValidator(_name)], Declared], BeforeValidator(_object)]
"""What the setting holds: sources by name."""
