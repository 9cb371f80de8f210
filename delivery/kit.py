"""What a channel of anybody's has to hold, as one function that its author calls in a test: `kit.check(other_side)`.

It needs no database and no test framework. What does not hold is an AssertionError that says what to mend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from twelvefold.ports import Channel, Finds, Letter, NotSent, Paced, PerhapsSent, Receipt

HOSTILE = (
    "", "\0\x1b[2J", "a\r\nBcc: eve@evil.example", "<!channel> <script>alert(1)</script> ${jndi:x} {{7*7}}",
    "\u202e\u2028\ud83d", "x" * 100_000, "```\n~~~\n## To decide", "'; DROP TABLE outbox; --", "%s %(a)s {0}",
)  # fmt: skip


class OtherSide(Protocol):
    """A stand-in for the service that the channel speaks to, and the channel to it. The author writes it."""

    recipient: str
    """Somebody who gets letters."""
    secret: str
    """What must never be told."""

    def channel(self) -> Channel:
        """A new channel to this stand-in, as another process would make it."""
        ...

    def seen(self) -> list[str]:
        """The ids of the letters that it took, one entry each time."""
        ...

    def refuse(self) -> None:
        """Refuse the next letter for good."""
        ...

    def busy(self) -> None:
        """Refuse the next letter for now."""
        ...

    def lose(self) -> None:
        """Take the next letter, and lose the answer."""
        ...


def check(other: OtherSide) -> None:
    """Hold the channel against everything that a channel has to hold."""
    _takes(other)
    _says_what_it_knows(other)
    _survives(other)
    _paces(other)


def letter(other: OtherSide, id_: str = "00000000-0000-4000-8000-000000000001", text: str = "hello") -> Letter:
    """A letter of the kit."""
    at = datetime(2026, 1, 15, 12, tzinfo=UTC)
    return Letter(id_, "kit", other.recipient, "A subject", text, at, source=f"# A subject\n\n{text}\n")


def _takes(other: OtherSide) -> None:
    receipt = other.channel().push(letter(other))
    assert isinstance(receipt, Receipt) and receipt.reference, "push() gives a Receipt that names the letter there"
    assert other.seen() == [letter(other).id], "the letter arrives under its id, once"
    again = other.channel().push(letter(other))
    assert again.reference and set(other.seen()) == {letter(other).id}, "a second attempt is the same letter, by its id"


def _says_what_it_knows(other: OtherSide) -> None:
    for number, (trouble, retry) in enumerate(((other.refuse, False), (other.busy, True))):
        known, sent = len(other.seen()), letter(other, f"refused-{number}")
        trouble()
        error = _error(other, sent, NotSent)
        assert isinstance(error, NotSent) and error.retry is retry, f"retry={retry} is what a refusal like this means"
        assert len(other.seen()) == known, "NotSent is only for what certainly did not arrive"
    known, sent = len(other.seen()), letter(other, "lost")
    other.lose()
    _error(other, sent, PerhapsSent)
    assert len(other.seen()) == known + 1, "the stand-in has to take the letter before it loses the answer"
    channel = other.channel()
    if isinstance(channel, Finds):
        found = channel.find(sent)
        assert found is None or found.reference, "find() gives the receipt of what is there, or None to send it again"
        assert len(other.seen()) == known + 1, "find() looks, it sends nothing that is there"


def _error(other: OtherSide, sent: Letter, kind: type[Exception]) -> Exception:
    try:
        other.channel().push(sent)
    except (NotSent, PerhapsSent) as error:
        assert isinstance(error, kind), f"{kind.__name__} is expected here, and {type(error).__name__} was raised"
        assert other.secret not in str(error), "an error never tells the secret"
        return error
    raise AssertionError(f"push() has to raise {kind.__name__} here")


def _survives(other: OtherSide) -> None:
    for number, text in enumerate(HOSTILE):
        for sent in (letter(other, f"hostile-{number}", text), replace(letter(other), id=f"h-{number}", subject=text)):
            _only_not_sent(lambda sent=sent: other.channel().push(sent))  # type: ignore[misc]
    stranger = replace(letter(other, "stranger"), recipient="\r\n nobody \u202e")
    _only_not_sent(lambda: other.channel().push(stranger))
    assert other.seen().count("stranger") == 0, "nobody gets a letter to nobody"
    assert other.secret not in repr(other.channel()), "a channel does not show its secret"


def _only_not_sent(push: Callable[[], Receipt]) -> None:
    try:
        push()
    except NotSent as error:
        assert not error.retry, "what will never go out is not tried again"


def _paces(other: OtherSide) -> None:
    channel = other.channel()
    if isinstance(channel, Paced):
        destination, gap = channel.pace(other.recipient)
        assert destination and destination != "*" and gap >= 0, "pace() names a destination and seconds"
