"""What a request was made of: texts by hash, from which its bytes can be joined again, whatever was deployed since.

A request is JSON around two strings, the system and the user message. `frame` is that JSON with marks in their places:
model, parameters and menu, the same for many requests. The system message is cut where prompt files begin and end, the
user message where a tag begins, so that a step stores what is new in its window and nothing twice. Frames and prompt
parts are code and shared; what was rendered of a task's events belongs to the task, and goes when it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twelvefold.canonical import sha256
from twelvefold.ports import ModelRequest

from .model_wire import question, written
from .profiles import Profile

SYSTEM, USER = "\0system\0", "\0user\0"
"""Marks that no message holds: the text gate lets no NUL through."""
HASH = 24
"""Hexadecimal digits of SHA-256 that name a text."""
_PIECE = re.compile(r"^(?=<[a-z]|</task>)", re.MULTILINE)
_SEQ = re.compile(r'<[a-z_]+ n="(\d+)"')


@dataclass(frozen=True, slots=True)
class Part:
    """A prompt file: its name below the folder `prompts`, and its text as it stands in the system message."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A text under its hash. `seq`: the event of the task that it was rendered from; None: it is shared. `source` names
    the file of a prompt part.
    """

    hash: str
    text: str
    seq: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A request as it goes over the wire, its hash, and what it was made of."""

    body: str
    request: str
    made_of: dict[str, Any]
    texts: tuple[Piece, ...]


class Gone(Exception):
    """The bytes cannot be shown: a text is missing, or what is joined is not what was sent."""


def make(request: ModelRequest, profile: Profile, parts: Sequence[Part]) -> Made:
    """The bytes of a request and its pieces."""
    frame = written(question(replace(request, system=SYSTEM, user=USER), profile))
    stored = [Piece(_hash(frame), frame)]
    system = [Piece(_hash(text), text, source=name) for name, text in _cut(request.system, parts)]
    user, seq = [], 0
    for text in _PIECE.split(request.user):
        found = _SEQ.match(text)
        seq = int(found[1]) if found else seq
        user.append(Piece(_hash(text), text, seq))
    made_of = {
        "frame": stored[0].hash, "system": [part.hash for part in system], "user": [piece.hash for piece in user],
    }  # fmt: skip
    body = _filled(frame, request.system, request.user)
    return Made(body, sha256(body), made_of, (*stored, *system, *user))


def _hash(text: str) -> str:
    return sha256(text)[:HASH]


def _cut(system: str, parts: Sequence[Part]) -> list[tuple[str, str]]:
    """(file name, text) of each prompt part in the message, and ("", text) of what stands between them."""
    cut: list[tuple[str, str]] = []
    at = 0
    for part in parts:
        found = system.find(part.text, at)
        if found < 0 or not part.text:
            continue
        cut += [("", system[at:found])] if found > at else []
        cut.append((part.name, part.text))
        at = found + len(part.text)
    return cut + ([("", system[at:])] if at < len(system) else [])


def _filled(frame: str, system: str, user: str) -> str:
    head, _, rest = frame.partition(_quoted(SYSTEM))
    middle, _, tail = rest.partition(_quoted(USER))
    return "".join([head, _quoted(system), middle, _quoted(user), tail])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def hashes(made_of: Mapping[str, Any]) -> list[str]:
    """Every text that is needed to join a request."""
    return [made_of["frame"], *made_of["system"], *made_of["user"]]


def joined(made_of: Mapping[str, Any], request: str, texts: Mapping[str, str]) -> str:
    """The bytes of a request as they were sent, as text. Raises Gone where they cannot be had any more."""
    missing = [name for name in hashes(made_of) if name not in texts]
    if missing:
        raise Gone(f"{len(missing)} of its texts are gone, as those of a redacted event are: {', '.join(missing[:3])}.")
    system, user = ("".join(texts[name] for name in made_of[where]) for where in ("system", "user"))
    body = _filled(texts[made_of["frame"]], system, user)
    if sha256(body) != request:
        raise Gone(f"What is joined hashes to {sha256(body)[:16]}, and what was sent to {request[:16]}.")
    return body
