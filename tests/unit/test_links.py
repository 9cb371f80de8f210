"""Links: whatever is changed in a token, or in what it was made of, it is no link any more."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from string import printable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.asked import SECRET, URL
from workers import signed
from workers.links import LETTERS, PURPOSE, WORD_LENGTH, Link, Links, NotALink

KEY = SECRET.get_secret_value()
LINKS = Links(URL, [KEY])
LINK = Link(
    tenant="t1", task="018f0000-0000-7000-8000-000000000001", call=3, asked=4, approver="ann@example.com",
    expires=1_800_000_000,
)  # fmt: skip
OTHER: dict[str, Any] = {
    "tenant": "t2", "task": "018f0000-0000-7000-8000-000000000002", "call": 4, "asked": 5,
    "approver": "bob@example.com", "expires": 1_800_000_001,
}  # fmt: skip


def mac(key: bytes, payload: str) -> str:
    return signed.mac(key, PURPOSE, payload)


def token(link: Link = LINK, links: Links = LINKS) -> str:
    return links.address(link).removeprefix(f"{URL}/a/")


def test_the_signature_is_the_published_one() -> None:
    payload = b'{"aid":"ap_01J","act":"approve","exp":1800000000,"kid":"k1","n":"c2FsdA","sub":"ann@example.com"}'
    written = urlsafe_b64encode(payload).decode().rstrip("=")
    assert mac(b"0123456789abcdef0123456789abcdef", written) == "QG3h_V2RXYzV6_eRuJAohypEnoOWWoFOCF1iMPDYj7g"


def test_a_link_reads_back_as_it_was_made() -> None:
    assert LINKS.read(token()) == LINK
    assert len(LINKS.address(LINK)) < 500, "mail programs break longer ones"


@given(st.integers(0, len(token()) - 1), st.sampled_from(printable + "é\0"))
def test_no_character_of_a_token_can_be_changed(at: int, char: str) -> None:
    good = token()
    if good[at] == char:
        return
    with pytest.raises(NotALink):
        LINKS.read(good[:at] + char + good[at + 1 :])


@given(st.text(max_size=300))
@example("")
@example("v1..")
@example("v1.e30." + mac(KEY.encode(), "e30"))
@example("v1.!." + "A" * 43)
@example(token() + "=")
@example(token() + "\n")
@example("v2" + token()[2:])
@example("v1." + "A" * 5000 + "." + mac(KEY.encode(), "A" * 5000))
def test_nothing_else_is_a_link(text: str) -> None:
    with pytest.raises(NotALink):
        LINKS.read(text)


@pytest.mark.parametrize("field", sorted(OTHER))
def test_no_field_of_a_link_can_be_changed(field: str) -> None:
    changed = LINK.model_copy(update={field: OTHER[field]})
    _, payload, signature = token().split(".")
    forged = urlsafe_b64encode(changed.model_dump_json().encode()).decode().rstrip("=")
    assert forged != payload
    with pytest.raises(NotALink):
        LINKS.read(f"v1.{forged}.{signature}")
    assert LINKS.word(changed) != LINKS.word(LINK), "and its word is another one"


def test_another_purpose_or_secret_makes_no_link() -> None:
    _, payload, signature = token().split(".")
    stranger = Links(URL, [KEY + "x"])
    for bad in (token(LINK, stranger), f"v1.{payload}.{LINKS.word(LINK)}", f"v1.{signature}.{payload}"):
        with pytest.raises(NotALink):
            LINKS.read(bad)


def test_the_first_secret_signs_all_verify_and_a_dropped_one_kills_its_links() -> None:
    new = "another secret of at least 32 characters"
    rotated, later = Links(URL, [new, KEY]), Links(URL, [new])
    assert rotated.read(token()) == LINK
    assert rotated.knows(LINK, LINKS.word(LINK))
    assert later.read(token(LINK, rotated)) == LINK
    with pytest.raises(NotALink):
        later.read(token())
    assert not later.knows(LINK, LINKS.word(LINK))


def test_a_link_expires() -> None:
    end = datetime.fromtimestamp(LINK.expires, UTC)
    assert LINK.expired(end)
    assert not LINK.expired(end - timedelta(seconds=1))


def test_a_word_is_typed_as_people_type_and_no_other_is_right() -> None:
    word = LINKS.word(LINK)
    assert len(word) == WORD_LENGTH and set(word) <= set(LETTERS)
    assert LINKS.knows(LINK, f" {word.lower()} ")
    for wrong in ("", word[:-1], word + "B", "é", word[::-1] + "\0"):
        assert not LINKS.knows(LINK, wrong)
    assert word not in token()


def test_the_payload_names_nothing_but_the_question_and_the_approver() -> None:
    assert sorted(json.loads(LINK.model_dump_json())) == sorted(OTHER)
