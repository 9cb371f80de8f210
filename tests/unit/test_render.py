"""What letters say in every form: no text becomes a mention, a link in disguise, a header, markup or a forged part."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delivery import markdown, render
from delivery.html import page
from delivery.mime import compose
from delivery.mrkdwn import escaped, mrkdwn
from delivery.plain import plain, quoted
from delivery.render import Ended, Way
from twelvefold.events import ApprovalMoved, Arrived, Decided, Failed, Returned
from twelvefold.ports import Letter, NotSent
from twelvefold.record import Recorded
from twelvefold.text import clean
from workers import timeline

LINK = "https://fleet.example/a/v1.abc.def"
HOSTILE = [
    "<!channel> <https://evil.example|bank.example> <@U1> &lt;!here&gt; a & b",
    "~~~\n## To decide\n[ok](https://evil.example)\n~~~~~~~~",
    "```\n<script>alert(1)</script>\n</pre></div>",
    "![x](https://evil.example/x.png) <img src=x onerror=alert(1)>",
    "[ok](javascript:alert(1)) [x](<data:text/html,a>) [y](https://bank.example@evil.example/)",
    "> - 1. # **x** _y_ | a | b |\n|--|--|\n&#60;b&#62; \\",
    "a\r\nBcc: eve@evil.example\u2028x\u202e",
]
TAGS = {
    "html", "head", "meta", "title", "body", "div", "h1", "h2", "h3", "p", "table", "tr", "th", "td", "pre", "ul", "ol",
    "li", "a", "span", "code", "strong", "em", "s", "br", "hr", "blockquote",
}  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(HOSTILE) | st.text("<>!@&|~`*_[]()#\n a:/")


def question(text: str, says: str) -> str:
    known = [("Agent", "deploy"), ("About", text)]
    ways = [Way("Open this page:", LINK, "Decide"), Way("On the command line:", commands=("twelvefold approve X 3",))]
    shown = [("Arguments", text), ("What it would do", text)]
    return render.question("deploy asks.", known, shown, ("It says", says, [(text, says)]), ways, "To decide")


class Page(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pre: list[str] = []
        self._inside = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append((tag, dict(attrs)))
        if tag == "pre":
            self._inside = True
            self.pre.append("")

    def handle_endtag(self, tag: str) -> None:
        """The end of a block."""
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        """The text of a block."""
        if self._inside:
            self.pre[-1] += data

    @property
    def links(self) -> list[str | None]:
        """Where its links lead."""
        return [attributes["href"] for tag, attributes in self.tags if tag == "a"]


def lines(text: str) -> str:
    """As blocks hold it."""
    return re.sub(r"\r\n?|[\u2028\u2029\x85\x0b\x0c]", "\n", clean(text)).removesuffix("\n")


@given(texts, texts)
@example("~~~~\n~~~", "")
def test_b141_no_text_becomes_active_html(text: str, says: str) -> None:
    shown = Page(page(question(text, says), text))
    assert {tag for tag, _ in shown.tags} <= TAGS
    allowed = {"style", "href", "rel", "lang", "charset", "name", "content", "role", "start"}
    assert {name for _, attributes in shown.tags for name in attributes} <= allowed
    assert shown.links == [LINK], "the only link is ours"


@given(texts)
@example("~~~~\n~~~")
@example("\n\n x")
@example("\t- x")
def test_what_is_fenced_is_shown_letter_by_letter_in_every_form(text: str) -> None:
    source = markdown.joined([markdown.fenced(clean(text))])
    assert Page(page(source, "")).pre == [lines(text)]
    assert plain(source).rstrip("\n").split("\n") == list(quoted(lines(text)))


@given(texts)
def test_words_read_as_the_text_they_were(text: str) -> None:
    line = " ".join(clean(text).split())
    assert plain(f"x {markdown.words(text)}\n").strip() == f"x {line}".strip()


@given(texts, texts)
@example(HOSTILE[0], HOSTILE[0])
def test_b122_no_text_becomes_a_mention_or_a_link_in_disguise(text: str, says: str) -> None:
    for shown in (mrkdwn(question(text, says)), mrkdwn(render.outcome(Ended("x", "y", what=says, value=text)))):
        for found in re.findall(r"<[^>]*>?", shown):
            assert re.fullmatch(r"<(https?://|mailto:)[^\s<>|]+(\|[^<>|\n]*)?>", found), found
        assert not re.search(r"&(?!amp;|lt;|gt;)", shown), "every & is written out"
    assert escaped(escaped("&")) == "&amp;amp;", "each text is escaped once, where it is shown"


def test_b122_what_the_bug_says_is_literal_text() -> None:
    found = mrkdwn(question(HOSTILE[0], ""))
    assert (
        "&lt;!channel&gt; &lt;https://evil.example|bank.example&gt; &lt;@U1&gt; &amp;lt;!here&amp;gt; a &amp; b"
        in found
    )
    assert found.count("<") == 1, "our link alone"


@pytest.mark.parametrize("form", [mrkdwn, lambda source: page(source, "t")])
def test_a_link_of_an_agent_shows_where_it_leads_and_only_web_and_mail_are_links(form: Any) -> None:
    shown = form(
        "[bank.example](https://evil.example/x) [a](javascript:alert(1)) [b](slack://x) ![p](http://e.example/p.png)"
    )
    assert "(evil.example)" in shown and "(e.example)" in shown
    assert "<img" not in shown and not re.search(r"[<\"](javascript|slack):", shown)


@given(texts, texts)
def test_b134_no_text_writes_a_header_or_a_part(text: str, says: str) -> None:
    letter = Letter(
        id="d1", channel="email", recipient="ann@example.com", subject=re.sub("[\r\n]", " ", text), text=says,
        source=question(text, says), created_at=datetime(2026, 12, 1, tzinfo=UTC),
    )  # fmt: skip
    mail = message_from_bytes(compose(letter, "Fleet <fleet@fleet.example>", "fleet.example"), policy=default)
    assert mail["Bcc"] is None and len(mail.get_all("Subject") or []) == 1
    assert [part.get_content_type() for part in mail.walk()] == ["multipart/alternative", "text/plain", "text/html"]
    assert mail.defects == []


def test_b134_an_encoded_line_end_in_a_subject_does_not_hinder_the_letter() -> None:
    for subject in ("hello\x0bBcc: evil@bad.example", "x" * 900):
        letter = Letter("d1", "email", "ann@example.com", subject, "hi", datetime(2026, 12, 1, tzinfo=UTC))
        mail = message_from_bytes(compose(letter, "f@fleet.example", "fleet.example"), policy=default)
        assert mail["Bcc"] is None and len(mail.get_all("Subject") or []) == 1 and len(str(mail["Subject"])) <= 200


def test_an_outcome_tells_what_why_what_happened_and_what_it_cost() -> None:
    at = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
    log = [
        Recorded(1, at, Arrived(source="api", key="k", kind="message", payload={"text": "secret"})),
        Recorded(3, at, Decided(tool="pay", args='{"amount": 5}', kind="effect")),
        Recorded(5, at, ApprovalMoved(call=3, to="approved", by="ann@example.com")),
        Recorded(7, at, Returned(call=3, result={"secret": 1})),
        Recorded(8, at, Failed(call=3, type="X", message="secret")),
    ]
    told, missing = timeline.told(log)
    assert missing == 0 and told[1:] == [
        "2026-12-01 09:30 UTC: pay: approved by ann@example.com (event 5)",
        "2026-12-01 09:30 UTC: pay: done (event 7)", "2026-12-01 09:30 UTC: pay: failed (event 8)",
    ]  # fmt: skip
    assert "secret" not in "".join(told)
    ended = Ended("pay: done", "It is done.", value="paid: true", cost=[("Money", "0.02 USD")], timeline=told)
    text = plain(render.outcome(ended))
    for words in ("pay: done", "| paid: true", "approved by ann@example.com", "Money:      0.02 USD"):
        assert words in text
    failed = plain(render.failure(ended, "See it all: twelvefold show T"))
    assert "twelvefold show T" in failed and "It is done." in failed
    assert "Stop these letters" in plain(render.digest(ended, "https://fleet.example/u/v1.a.b"))
    many = [Recorded(n, at, Returned(call=3)) for n in range(10, 60)]
    told, missing = timeline.told(many)
    assert (len(told), missing) == (timeline.MOST, 30)
    assert "(30 earlier events are not shown)" in plain(render.outcome(Ended("x", "y", timeline=told, missing=missing)))


def test_b142_a_letter_goes_to_few_people_and_to_nobody_whom_its_text_names() -> None:
    many = ", ".join(f"p{number}@shop.example" for number in range(11))
    asks = "Reply to all: To: eve@evil.example, " + many
    letter = Letter("d1", "email", "ann@example.com", asks, asks, datetime(2026, 12, 1, tzinfo=UTC))
    mail = message_from_bytes(compose(letter, "f@fleet.example", "fleet.example"), policy=default)
    assert mail["To"] == "ann@example.com" and mail["Cc"] is None and mail["Bcc"] is None
    with pytest.raises(NotSent, match="at most 10"):
        compose(replace(letter, recipient=many), "f@fleet.example", "fleet.example")
