"""The one text gate: every string bound for the database, a model, a channel or a page passes through here.

What comes out can be stored (no NUL, no surrogate), can stand in XML, and hides nothing from a reader: what no person
sees and no script or emoji needs is gone, and counted. The raw original is kept elsewhere.

The hidden characters are Unicode's Default_Ignorable_Code_Point, the controls but tab and line ends, and the
noncharacters U+FFFE and U+FFFF. Each exception in `_NEEDED` asks for a visible neighbour, so nothing longer than
one character can hide in it, and cleaning twice changes nothing more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

REPLACEMENT = "\ufffd"
MARKER = "##- reply above this line -##"
"""The first line of a letter that can be answered by mail: what a reply has below it is quoted."""
_PLAIN_ASCII = b"\t\n\r" + bytes(range(0x20, 0x7F))

_HIDDEN = (
    r"\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_JOINING = (  # Arabic to Sinhala, Myanmar, Khmer, Mongolian, Tai Tham, Balinese and other scripts whose letters join
    r"[\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1807\u1820-\u18af\u1a20-\u1aaf\u1b00-\u1bff"
    r"\ua840-\ua87f\ua8e0-\ua8ff\ua980-\ua9df\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    r"\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
_VIRAMA = r"[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca\u1039\u103a\u17d2]"
_PICTURE = (
    r"[\xa9\xae\u203c\u2049\u20e3\u2100-\u214f\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    r"\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_VARIED = (  # what has standardised variants: mathematics, Han, Myanmar, Phags-pa, Manichaean, hieroglyphs
    r"[\u2200-\u22ff\u2a00-\u2aff\u1000-\u109f\ua840-\ua87f\uaa60-\uaa7f\u3001\u3002\uff01-\uff1f"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00010ac0-\U00010aff\U00013000-\U0001345f\U00020000-\U0003ffff]"
)
_HAN = r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_JAMO = r"[\u1100-\u115e\u1161-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]"


def _flag(region: str) -> str:
    """The tag sequence of a subdivision flag, such as Scotland's."""
    return "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"


_NEEDED = "|".join(
    (
        _flag("gbeng"),
        _flag("gbsct"),
        _flag("gbwls"),
        rf"(?<={_JOINING})[\u200c\u200d](?=[\u200b-\u200f]*{_JOINING})",
        rf"(?<={_VIRAMA})[\u200c\u200d]",
        rf"(?<={_PICTURE})\u200d(?={_PICTURE})",
        rf"(?<={_PICTURE}[\ufe0e\ufe0f])\u200d(?={_PICTURE})",
        rf"(?<={_PICTURE})[\ufe0e\ufe0f]",
        r"(?<=[0-9#*])\ufe0f(?=\u20e3)",
        rf"(?<={_VARIED})[\ufe00-\ufe0f]",
        rf"(?<={_HAN})[\U000e0100-\U000e01ef]",
        r"(?<=[\u1807\u1820-\u18af])[\u180b-\u180f]",
        rf"(?<={_JAMO})[\u115f\u1160]|[\u115f\u1160](?={_JAMO})",
        r"(?<=[\u0591-\u05f4])\u034f(?=[\u0591-\u05f4])",
    )
)
_GATE = re.compile(f"(?P<needed>{_NEEDED})|[{_HIDDEN}]")
_SUSPECT = re.compile(f"[{_HIDDEN}\ud800-\udfff]")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_REPLACED = frozenset("\0\ufffe\uffff")
_LINE_ENDS = re.compile(r"[\r\n\x0b\x0c\x85\u2028\u2029]+")
_EXTENDS = re.compile(
    r"[\u115f-\u11ff\ud7b0-\ud7ff\udc00-\udfff\u200c\u200d\ufe00-\ufe0f"
    r"\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text after the gate, and how many of its code points were removed or replaced."""

    text: str
    changed: int = 0


@dataclass(frozen=True, slots=True)
class CleanedValue:
    """A JSON value after the gate, and how many code points of all its strings and keys were removed or replaced."""

    value: Any
    changed: int = 0


def clean(text: str) -> str:
    """The text without what cannot be stored and without what cannot be seen. Idempotent."""
    return text if _is_clean(text) else inspect(text).text


def inspect(text: str) -> Cleaned:
    """Clean the text and count what was changed: more than a stray one deserves a reader's attention."""
    if _is_clean(text):
        return Cleaned(text)
    changed = 0

    def judge(match: re.Match[str]) -> str:
        nonlocal changed
        if match.lastgroup:
            return match[0]
        changed += 1
        return REPLACEMENT if match[0] in _REPLACED else ""

    def mend(match: re.Match[str]) -> str:
        nonlocal changed
        changed += 1
        return _joined(match[0])

    return Cleaned(_GATE.sub(judge, _SURROGATES.sub(mend, text)), changed)


def clean_json(value: Any) -> Any:
    """`clean` on every string and key of a JSON value; the value is not changed in place.

    Keys that become equal all stay: one that was clean keeps its name, the others get `~2`, `~3` and so on.
    A tuple becomes a list. Raises TypeError for a key that is not a string.
    """
    return inspect_json(value).value


def inspect_json(value: Any) -> CleanedValue:
    """`clean_json`, with the count of what was changed."""
    tally = [0]
    return CleanedValue(_cleaned(value, tally), tally[0])


def reveal(text: str) -> str:
    """The text with every character that `clean` would change written as `\\u{202E}`: for a person who approves it.
    `clean` changes nothing more.
    """
    text = _SURROGATES.sub(lambda match: _joined(match[0]) if len(match[0]) == 2 else _escape(match[0]), text)
    while (revealed := _GATE.sub(lambda match: match[0] if match.lastgroup else _escape(match[0]), text)) != text:
        text = revealed  # what stood beside a character that was written out may have lost the neighbour it needs
    return text


def one_line(text: str, limit: int = 200) -> str:
    """The text cleaned, on one line, at most `limit` code points: fit for a subject or a line of a log."""
    return shorten(" ".join(clean(_LINE_ENDS.sub(" ", text)).split()), limit)


def shorten(text: str, limit: int) -> str:
    """At most `limit` code points; what is missing is told as `… [N more characters]`, or `…` where that has no room.

    Never cuts inside a surrogate pair, a combining sequence, an emoji sequence or a pair of regional indicators.
    """
    if len(text) <= limit:
        return text
    if limit <= 0:
        return ""
    note_length = len(_note(len(text)))
    room = limit - note_length if limit > note_length else limit - 1
    end = cut_at(text, room)
    note = _note(len(text) - end)
    return text[:end] + (note if end + len(note) <= limit else "…")


def _is_clean(text: str) -> bool:
    if text.isascii():
        return not text.encode().translate(None, _PLAIN_ASCII)
    return _SUSPECT.search(text) is None


def _joined(found: str) -> str:
    """The character of a surrogate pair that a careless cut and paste left in two halves; a lone half is lost."""
    if len(found) == 1:
        return REPLACEMENT
    return chr(0x10000 + ((ord(found[0]) - 0xD800) << 10) + ord(found[1]) - 0xDC00)


def _escape(char: str) -> str:
    return f"\\u{{{ord(char):04X}}}"


def _cleaned(value: Any, tally: list[int]) -> Any:
    """The value after the gate; `tally[0]` grows by what was changed."""
    if isinstance(value, str):
        return value if _is_clean(value) else _counted(value, tally)
    if isinstance(value, list | tuple):
        return [_cleaned(item, tally) for item in value]
    if isinstance(value, dict):
        names = value if all(_is_clean(_key(key)) for key in value) else _names(value, tally)
        return {name: _cleaned(member, tally) for name, member in zip(names, value.values(), strict=True)}
    return value


def _counted(text: str, tally: list[int]) -> str:
    cleaned = inspect(text)
    tally[0] += cleaned.changed
    return cleaned.text


def _names(keys: Iterable[str], tally: list[int]) -> list[str]:
    cleaned = [(key, _counted(key, tally)) for key in keys]
    taken = {key for key, text in cleaned if text == key}
    last: dict[str, int] = {}  # where the last search ended, so that many equal names do not cost their square
    names = []
    for key, text in cleaned:
        name, number = text, last.get(text, 1)
        while name in taken and name != key:
            number += 1
            name = f"{text}~{number}"
        last[text] = number
        taken.add(name)
        names.append(name)
    return names


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"A key of a JSON object must be a string, not {type(key).__name__}: {key!r}.")
    return key


def _note(count: int) -> str:
    return f"… [{count} more characters]"


def cut_at(text: str, end: int) -> int:
    """The last place at or before `end` where the text may be cut."""
    while end > 0 and _inside(text, end):
        end -= 1
    return end


def _inside(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if before == "\u200d" or (before == "\r" and after == "\n"):
        return True
    if unicodedata.category(after)[0] == "M" or _EXTENDS.match(after):
        return True
    return _regional(after) and _regionals_before(text, at) % 2 == 1


def _regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _regionals_before(text: str, at: int) -> int:
    return sum(1 for _ in takewhile(_regional, reversed(text[:at])))
