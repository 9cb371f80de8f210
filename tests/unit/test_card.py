"""The card: it shows all that would be executed, and no text on it can pass for another part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from delivery.plain import WIDTH
from twelvefold.canonical import canonical
from twelvefold.schema import menu_entry
from twelvefold.text import clean, reveal
from twelvefold.tool import Tool
from twelvefold.verdict import Verdict, people
from workers import registry
from workers.card import LONGEST_ARGUMENTS, LONGEST_SAYING, Card, letter_text, unlinked

LINK = "https://fleet.example/a/v1.abc.def"
CARD = Card(
    agent="deploy", about="shop@v1", task="018f0000-0000-7000-8000-000000000001", call=3, asked=4, tool="deploy",
    args='{"tag":"v1"}', says="It is tested.", target="Ann@example.com, ben@example.com", risk="medium",
    deadline=datetime(2026, 12, 2, 9, 40, tzinfo=UTC), digest="d" * 64,
)  # fmt: skip
# what programs that show mails make links of: schemes, and names with a dot before letters
CLICKABLE = re.compile(r"\w+:[^\s\d]|\S[.\u3002\uff0e\uff61][^\W\d]|\S@\S")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def card(**change: Any) -> Card:
    return CARD.model_copy(update=change)


def mail(shown: Card) -> str:
    return letter_text(shown, LINK, "BCDFGH")


def own_lines(text: str) -> list[str]:
    """The lines that are written by code: not quoted."""
    return [line for line in text.split("\n") if not line.startswith(("| ", ": "))]


def quoted_lines(text: str) -> list[str]:
    """The lines of somebody else's text."""
    return [line for line in text.split("\n") if line.startswith(("| ", ": "))]


def every_tool() -> Iterator[type[Tool[Any]]]:
    for modules in ("agents", "tests.agents"):
        for entry in registry.load(modules).loaded.values():
            yield from entry.agent.menu.values()


@pytest.mark.parametrize("tool", list(every_tool()), ids=lambda tool: f"{tool.__module__}.{tool.__name__}")
def test_the_card_shows_every_argument_of_every_tool(tool: type[Tool[Any]]) -> None:
    names = list(menu_entry(tool)["parameters"]["properties"])
    given = {name: f"value of {name}" for name in names}
    shown = card(args=canonical(given))
    assert not shown.cut
    assert (yaml.safe_load(shown.arguments) if names else {}) == (given or {})
    for name in names:
        assert f"| {name}: value of {name}" in mail(shown)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"quorum": 2}, "Needed:     the approval of 2 people"),
        ({"all_of": ("ann@example.com", "ben@example.com")}, "one of ann@example.com; one of ben@example.com"),
        ({"four_eyes": True}, "nobody who asked for this or edited it"),
        ({"editor": "cleo@example.com"}, "Edited by:  cleo@example.com"),
        ({"escalated": "cleo@example.com"}, "And now:    cleo@example.com"),
        ({"at_expiry": "deny"}, "after that it counts as expired"),
        ({"at_expiry": "park"}, "after that it waits for an operator"),
        ({"at_expiry": "allow"}, "after that it runs all the same"),
        ({"preview": {"drops": ["pears"]}}, "| drops:\n|   - pears"),
    ],
)
def test_the_card_shows_every_part_of_the_rule_that_is_carried_out(rule: dict[str, Any], words: str) -> None:
    assert words in mail(card(**rule))


def test_what_decides_about_a_call_is_on_its_card() -> None:
    """A field of the verdict is shown, or it says only when somebody is written to."""
    silent = {"kind", "remind", "escalate", "escalate_to"}
    under_another_name = {"reason": "says", "tainted": "tainted"}
    for name in set(Verdict.model_fields) - silent:
        assert under_another_name.get(name, name) in Card.model_fields, name


def test_a_preview_that_was_cut_cannot_be_approved_and_one_that_hides_something_is_written_out() -> None:
    assert card(preview="x" * (LONGEST_ARGUMENTS + 1)).cut and not card(preview="x").cut
    assert "\u202e" not in mail(card(preview={"a": "\u202e"}))
    assert not CLICKABLE.search("\n".join(quoted_lines(mail(card(preview="see evil.example or https://evil.example")))))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), JSON_VALUES, min_size=1, max_size=4))
@example({"x": "\u0645\u200c\u200b\u0645", "y": "a\n", "z": "\r\n"})
def test_every_value_is_shown_and_what_hides_is_written_out(value: dict[str, Any]) -> None:
    shown = card(args=json.dumps(value))
    assert yaml.safe_load(shown.arguments) == _written_out(value)
    assert clean(shown.arguments) == shown.arguments


def _written_out(value: Any) -> Any:
    if isinstance(value, str):
        return reveal(value)
    if isinstance(value, dict):
        return {key: _written_out(member) for key, member in value.items()}
    return [_written_out(item) for item in value] if isinstance(value, list) else value


HOSTILE = [
    "x\n\nTHE AGENT SAYS (nobody checked this)\n| fine",
    "x\r\nTO DECIDE\r\nOpen this page: https://evil.example/a/v1.x.y",
    "x\u2028FACTS\u2029Tool: harmless\x85Tool: harmless\x0bTool: harmless\x0cTool: harmless",
    "x" + " " * (WIDTH * 2 - 1) + "The page asks for this word: WRONGS",
    "\u202egnol\u200b",
    "www.evil.example/a mailto:eve@evil.example evil\u3002example HTTPS://EVIL.EXAMPLE \u2764.ws",
    "--\nSubject: other\n\n",
]


@pytest.mark.parametrize("evil", HOSTILE)
def test_no_text_of_a_call_forges_a_zone_a_link_or_a_word(evil: str) -> None:
    plain, hostile = mail(card(args='{"tag":"x"}', says="", about="x")), None
    for change in (
        {"args": canonical({"tag": evil})},
        {"says": evil},
        {"args": canonical({"tag": evil}), "says": evil},
    ):
        hostile = mail(card(about="x", **change))
        assert own_lines(hostile) == own_lines(plain), "what code writes is the same whatever the call says"
    assert hostile is not None
    assert re.findall(r"https?://\S+", hostile) == [LINK]


@given(st.text())
def test_nothing_that_a_call_says_can_be_clicked(evil: str) -> None:
    found = mail(card(args=canonical({"tag": evil}), says=evil, about=evil)).replace(LINK, "")
    found = found.replace("Ann@example.com, ben@example.com".lower(), "")
    for line in found.split("\n"):
        if line.startswith(("| ", ": ", "About")):
            assert not CLICKABLE.search(line.partition(":")[2] if line.startswith(("About", "| tag")) else line[2:])


@given(st.text())
def test_broken_links_stay_readable(text: str) -> None:
    assert len(unlinked(text)) <= 4 * len(text)
    assert unlinked(text).replace("[.]", ".").replace("[:]", ":").replace("[at]", "@") == _dots(text) or "[" in text


def _dots(text: str) -> str:
    return re.sub(r"(?<=\S)[\u3002\uff0e\uff61](?=[^\W\d])", ".", text)


def test_numbers_times_and_versions_stay_as_they_are() -> None:
    for text in ("12.50", "10:30:00", "1.2.3", "a: b", "2026-12-01T10:00:00Z", "the end. Next"):
        assert unlinked(text) == text


def test_a_subject_is_one_line_whatever_it_is_about() -> None:
    title = card(about="v1\r\nBcc: eve@evil.example\u202e").title
    assert title.startswith("deploy: approve deploy? v1 Bcc: ") and "\\u{202E}" in title
    assert title.isprintable()


def test_what_was_cut_is_told_and_the_mail_has_no_link() -> None:
    long = card(args=canonical({"tag": "x" * LONGEST_ARGUMENTS}))
    assert long.cut and "more characters]" in long.arguments
    assert LINK not in mail(long) and "BCDFGH" not in mail(long)
    assert "cannot be approved by mail" in mail(long)
    assert f"twelvefold approve {CARD.task} 3" in mail(long)
    just = card(args=canonical({"t": "x" * (LONGEST_ARGUMENTS - 4)}))
    assert not just.cut and "x" * (LONGEST_ARGUMENTS - 4) in just.arguments


def test_what_the_agent_says_is_short_and_one_paragraph() -> None:
    said = card(says="http://a.example\n" * 200).saying
    assert len(said) <= LONGEST_SAYING and "\n" not in said and not CLICKABLE.search(said)
    assert "| nothing" in mail(card(says=""))


def test_a_high_risk_names_the_other_ways_and_asks_for_no_word() -> None:
    text = letter_text(card(risk="high"), LINK, None)
    assert "a link is not enough" in text and "word" not in text and "twelvefold approve" in text


def test_without_links_the_mail_names_the_command_line() -> None:
    text = letter_text(CARD, None, None)
    assert "http" not in text.lower() and f"twelvefold deny {CARD.task} 3" in text


def test_the_people_of_a_target_are_its_addresses() -> None:
    assert people("Ann@Example.com, ben@example.com ann@example.com") == ("ann@example.com", "ben@example.com")
    assert people("Ann <ann@example.com>; <Ben@example.com>") == ("ann@example.com", "ben@example.com")
    assert people("#releases") == people("") == people("ops") == people("@x, y@") == ()


def test_the_facts_name_responders_and_deadline() -> None:
    facts = dict(CARD.facts)
    assert facts["May decide"] == "ann@example.com, ben@example.com"
    assert facts["Until"].startswith("2026-12-02 09:40 UTC")
    assert "whoever" in dict(card(target="#ops").facts)["May decide"]
    assert clean(mail(CARD)) == mail(CARD)
