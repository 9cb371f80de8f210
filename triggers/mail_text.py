"""The text of a mail: bytes in whatever charset their sender claims, and HTML for those who sent nothing else.

Nothing here raises for any input, and nothing is fetched: of an image only its description is kept.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from email.errors import HeaderParseError
from email.header import decode_header

_ALIASES = {
    "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030", "ks_c_5601-1987": "cp949", "euc-kr": "cp949",
    "iso-8859-8-i": "iso-8859-8", "iso-8859-6-i": "iso-8859-6", "windows-874": "cp874", "iso-2022-jp": "iso2022_jp_ext",
    "shift_jis": "cp932", "big5": "big5hkscs", "us-ascii": "utf-8", "iso-8859-1": "cp1252", "latin-1": "cp1252",
    "unicode-1-1-utf-7": "utf-7", "x-mac-roman": "mac-roman",
}  # fmt: skip
"""The charset that programs mean where they name a smaller or an unknown one."""
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})
_PLAIN_CP = re.compile(r"cp-?(\d{3,5})|windows-?(\d{3,5})")


def decode(raw: bytes, charset: str | None) -> str:
    """The text. A charset that is not known, or that the bytes are not in, is guessed: UTF-8, else what can be told of
    the bytes; the rest becomes U+FFFD.
    """
    codec = _codec(charset)
    if codec is None and b"\x1b" in raw:
        codec = "iso2022_jp_ext"
    for name in (codec, "utf-8"):
        try:
            if name is not None:
                return raw.decode(name)
        except (UnicodeError, ValueError):
            continue
    return raw.decode(codec or "ascii", "replace")


def decode_words(value: str) -> str:
    """A header's value with its encoded words read; words of one charset are joined before that, since some programs
    cut a character in two. Bytes beside them (in surrogates, as the parser leaves them) are guessed.
    """
    try:
        chunks = decode_header(value)
    except (HeaderParseError, ValueError, LookupError):
        return _eight_bit(value)
    return "".join(
        _eight_bit(chunk) if isinstance(chunk, str) else decode(chunk, charset) if charset else _unencoded(chunk)
        for chunk, charset in chunks
    )


def _unencoded(chunk: bytes) -> str:
    """What stands between encoded words, which the standard library hands on in an encoding of its own."""
    return _eight_bit(chunk.decode("raw-unicode-escape", "surrogateescape"))


def _eight_bit(value: str) -> str:
    if value.isascii():
        return value
    try:
        return decode(value.encode("ascii", "surrogateescape"), None)
    except UnicodeEncodeError:
        return value


def _codec(charset: str | None) -> str | None:
    name = (charset or "").strip().strip("\"'").lower()
    name = _ALIASES.get(name, name)
    if numbered := _PLAIN_CP.fullmatch(name):
        name = f"cp{numbered[1] or numbered[2]}"
    try:
        found = codecs.lookup(name) if name and "\0" not in name else None
    except (LookupError, ValueError):
        return None
    if found is None or not getattr(found, "_is_text_encoding", True) or found.name in _NO_CHARSETS:
        return None
    return found.name


_SKIPPED = frozenset({"script", "style", "head", "title", "template", "noscript", "object", "svg"})
_BLOCKS = frozenset({
    "address", "article", "blockquote", "br", "center", "dd", "div", "dl", "dt", "footer", "form", "h1", "h2", "h3",
    "h4", "h5", "h6", "header", "hr", "li", "ol", "p", "pre", "section", "table", "tr", "ul",
})  # fmt: skip
_HIDING = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|mso-hide\s*:\s*all"
    r"|(?:font-size|opacity|max-height|height|width|line-height)\s*:\s*0(?:\.0*)?(?:px|pt|em|rem|%)?\s*(?:;|!|$))",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"(?:^|;)\s*(color|background(?:-color)?)\s*:\s*([^;!]+)", re.IGNORECASE)
LONGEST_HTML = 500_000
CUT = "\n\n[The rest of this page is not shown: it is too long.]"
DEEPEST = 20
"""Deeper quotes look like this one."""


def from_html(html: str) -> tuple[str, int]:
    """The visible text of an HTML page with the addresses of its links, and how many characters of it were hidden from
    a reader, which are left out. Quotes begin with `> ` as they do in plain text. A longer page is cut and says so.
    """
    from lxml import etree  # comes with the group mail-in

    # the charset is decoded already, whatever the page says of it
    parser = etree.HTMLParser(encoding="utf-8", recover=True, no_network=True, remove_comments=True, remove_pis=True)
    cut = html[:LONGEST_HTML].encode("utf-8", "replace").replace(b"\0", b"")
    root = etree.fromstring(cut, parser) if cut.strip() else None
    reader = _Reader()
    for event, element in () if root is None else etree.iterwalk(root, events=("start", "end")):
        if event == "start":
            reader.start(element.tag, dict(element.attrib))
            reader.data(element.text or "")
        else:
            reader.end(element.tag)
            reader.data(element.tail or "")
    return reader.text() + (CUT if len(html) > LONGEST_HTML else ""), reader.hidden


class _Reader:
    """Text line by line. What is open is counted, so that a deep page costs no more than a flat one."""

    def __init__(self) -> None:
        self.hidden = 0
        self._effects: list[str] = []
        self._count: Counter[str] = Counter()
        self._lines: list[tuple[int, str]] = []
        self._line: list[str] = []
        self._links: list[tuple[str, int]] = []

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag in _BLOCKS:
            self._break()
        if tag == "li":
            self._line.append("- ")
        if tag == "img" and given.get("alt", "").strip():
            self.data(f"[image: {given['alt'].strip()}]")
        if tag == "a":
            self._links.append((given.get("href", "").strip(), len(self._line)))
        self._effects.append(_effect(tag, given))
        self._count[tag] += 1
        self._count[self._effects[-1]] += 1

    def end(self, tag: str) -> None:
        if tag == "a":
            self._end_link(*self._links.pop())
        if tag in _BLOCKS and tag != "br":
            self._break()
        if tag in ("td", "th"):
            self._line.append(" ")
        self._count[tag] -= 1
        self._count[self._effects.pop()] -= 1

    def data(self, data: str) -> None:
        if self._count["/skip"]:
            return
        if self._count["/hide"]:
            self.hidden += len("".join(data.split()))
        elif self._count["pre"]:
            for number, line in enumerate(data.split("\n")):
                if number:
                    self._break()
                self._line.append(line)
        else:
            self._line.append(re.sub(r"\s+", " ", data))

    def text(self) -> str:
        self._break()
        lines = [("> " * depth + line).rstrip() for depth, line in self._lines]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def _break(self) -> None:
        line = re.sub(r" {2,}", " ", "".join(self._line)).strip()
        if line or (self._lines and self._lines[-1][1]):
            self._lines.append((min(self._count["blockquote"], DEEPEST), line))
        self._line.clear()

    def _end_link(self, address: str, start: int) -> None:
        shown = "".join(self._line[start:]).strip()
        scheme = address.partition(":")[0].lower()
        seen = not (self._count["/skip"] or self._count["/hide"])
        if seen and scheme in ("http", "https", "mailto") and address.removeprefix("mailto:") != shown:
            self._line.append(f" <{address}>")


def _effect(tag: str, given: dict[str, str]) -> str:
    if tag in _SKIPPED:
        return "/skip"
    style = given.get("style", "")
    colours = {name.lower()[:5]: value.strip().lower() for name, value in _COLOUR.findall(style)}
    invisible = "color" in colours and colours.get("color") == colours.get("backg")
    return "/hide" if "hidden" in given or _HIDING.search(style) or invisible else ""
