"""Webhook sources besides GitHub as an operator declares them: one JSON object, every mistake told, no secret shown.

Each member is one source at `/hooks/{name}`: how its sender signs, and where its deliveries carry which name. The
secrets stand apart, in the variable that `secrets_variable` names, so that the declaration itself is no secret.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic import field_validator as check

from twelvefold.errors import DeclarationError

from .signature import Scheme

RESERVED = frozenset({"github", "operate", "task", "delegate", "schedule", "api", "cli", "email", "slack"})
"""Names in `arrivals.source` that are ours: a sender who could use one could take the key of another arrival."""
SHORTEST_SECRET = 16
EXAMPLE = '{"shop": {"header": "X-Shop-Signature", "key_pointer": "/id", "type_pointer": "/event"}}'
POINTER = re.compile(r"(/([^~/]|~[01])*)+")


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


class Declared(BaseModel):
    """One source: the fields of `signature.Scheme` and `source.Generic`, in words for an operator.

    `signed` is what is signed, `{body}` or for example `{timestamp}.{body}`. Without `key_header` and `key_pointer` a
    delivery is known by its bytes. `type` is the type of every delivery that names none; `tenant` the owner, if it is
    not that of the whole deployment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: Header
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

    @property
    def scheme(self) -> Scheme:
        """How the sender signs."""
        return Scheme(self.header, self.prefix, self.algorithm, self.encoding, self.timestamp_header, self.signed)


Sources = Annotated[dict[Annotated[str, AfterValidator(_name)], Declared], BeforeValidator(_object)]
"""What the setting holds: sources by name."""
