"""What the headers of a mail say about its sender: whether a program wrote it, and what proves who did.

A mail that a program sent on its own starts and continues nothing and is never answered (RFC 3834): two programs that
answer each other do so for ever. Each signal alone is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import getaddresses

UNPROVEN = "none"
Headers = Sequence[tuple[str, str]]
"""Names in lower case and values on one line, the top-most first."""
_BULK = frozenset({"bulk", "junk", "list", "auto_reply", "auto-reply"})
_ROBOTS = re.compile(r"mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?([+-].*)?", re.IGNORECASE)
_MARKS = ("x-auto-response-suppress", "x-autoreply", "x-autorespond", "x-auto-respond")
_COMMENT = re.compile(r"\((?:[^()\\]|\\.)*\)")
_LISTED = re.compile(r"list-.*|x-mailman-version|x-beenthere")
_LIST_ID = re.compile(r"<([^<>]*)>\s*$")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is ours, so that it can be told apart. `authserv`: the name under which our own mail server writes its
    Authentication-Results; without one nobody is proven. `domains`: of our Message-IDs and our X-Loop. `addresses`:
    those that we send from and listen at; `lists`: the mailing lists that somebody wants to hear from, by List-Id.
    """

    authserv: str | None = None
    domains: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """The parts of a mail that are judged. `mail_from` is the envelope's, empty for a bounce, None if unknown."""

    headers: Headers
    sender: str
    mail_from: str | None = None
    content_type: str = "text/plain"
    message_id: str = ""
    several: bool = field(default=False)
    """More than one sender is named, so that nothing can prove any of them."""


def automatic(facts: Facts, rules: Rules) -> str:
    """The first signal that no person wrote this mail, or nothing."""
    return next(_signals(facts, rules), "")


def _signals(facts: Facts, rules: Rules) -> Iterator[str]:
    found = {name: value.strip() for name, value in reversed(facts.headers)}
    listed = list_of(found.get("list-id", ""))
    wanted = listed in rules.lists
    if facts.mail_from == "" or (facts.mail_from is None and found.get("return-path") == "<>"):
        yield "null_return_path"
    if _first_word(found.get("auto-submitted", "no")) != "no":
        yield "auto_submitted"
    if _first_word(found.get("precedence", "")) in _BULK and not wanted:
        yield "precedence"
    yield from (name.replace("-", "_") for name in _MARKS if name in found)
    if rules.domains & {value.strip().lower() for name, value in facts.headers if name == "x-loop"}:
        yield "x_loop"
    if any(_LISTED.fullmatch(name) for name in found) and not wanted:
        yield "list"
    if facts.content_type == "multipart/report":
        yield "report"
    yield from _of_sender(facts, rules)


def _of_sender(facts: Facts, rules: Rules) -> Iterator[str]:
    if not facts.sender:
        yield "no_sender"
    if _ROBOTS.fullmatch(facts.sender.partition("@")[0]):
        yield "robot_sender"
    if facts.sender in rules.addresses:
        yield "own_address"
    if facts.message_id.strip("<>").rpartition("@")[2].lower() in rules.domains:
        yield "own_message_id"


def list_of(value: str) -> str:
    """The id in a List-Id header: `SoCal-Raves <scr.socal-raves.org>` is `scr.socal-raves.org`."""
    found = _LIST_ID.search(value)
    return (found[1] if found else value).strip().lower()


def proof(facts: Facts, rules: Rules) -> str:
    """What our own mail server says proves the sender: `dmarc`, `dkim`, `spf` (each for the domain of From), or `none`.

    Only the top-most Authentication-Results of our name counts: what stands below came with the mail (RFC 8601).
    """
    domain = facts.sender.rpartition("@")[2].lower()
    if not rules.authserv or not domain or facts.several:
        return UNPROVEN
    values = (_COMMENT.sub(" ", value) for name, value in facts.headers if name == "authentication-results")
    ours = next((value for value in values if _server(value) == rules.authserv.lower()), None)
    if ours is None:
        return UNPROVEN
    results = [_result(part) for part in ours.split(";")[1:]]
    if any(method == "dmarc" and said == "fail" for method, said, _ in results):
        return UNPROVEN
    passed = [(method, properties) for method, said, properties in results if said == "pass"]
    for method, name in (("dmarc", "header.from"), ("dkim", "header.d"), ("spf", "smtp.mailfrom")):
        if any(m == method and _aligned(method, p.get(name, ""), domain) for m, p in passed):
            return method
    return UNPROVEN


def _server(value: str) -> str:
    return _first_word(value.partition(";")[0])


def _result(part: str) -> tuple[str, str, dict[str, str]]:
    """`dkim=pass header.d=b.test` as method, result and properties."""
    pairs = [(name.strip().lower(), value.strip("\"' ").lower()) for name, value in _PAIR.findall(part)]
    method, said = pairs[0] if pairs else ("", "")
    return method.partition("/")[0], said, dict(pairs[1:])


_PAIR = re.compile(r"([\w./-]+)\s*=\s*(\"[^\"]*\"|[^\s;]+)")


def _aligned(method: str, given: str, domain: str) -> bool:
    """Whether what passed speaks for the domain of From. A signature of a parent domain speaks for those below it."""
    given = given.rpartition("@")[2].strip("<>")
    return given == domain or (method == "dkim" and "." in given and domain.endswith(f".{given}"))


def _first_word(value: str) -> str:
    return next(iter(re.split(r"[\s;(]", value.strip().lower(), maxsplit=1)), "")


def addresses(value: str) -> list[str]:
    """The addresses in a header, in lower case."""
    return [address.lower() for _, address in getaddresses([value]) if "@" in address]
