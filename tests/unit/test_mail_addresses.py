"""Addresses that letters are answered at and bounce to."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pydantic import SecretStr

from workers.addresses import bounce_address, read_bounce, read_reply, reply_address, reply_token
from workers.settings import Settings

KEY = "reply-key-0123456789abcdef012345"
ANN = "ann@example.com"


def settings(*keys: str, **change: object) -> Settings:
    values = {"mail_in_domain": "in.example.com", "link_secrets": tuple(map(SecretStr, keys or (KEY,))), **change}
    return Settings.model_validate({"database_url": "postgresql://x", "broker_url": "redis://x", **values})


def test_the_published_vector_of_a_reply_address() -> None:
    made = reply_address(settings(), "r7k2m9", "Ann@Example.com")
    assert made == "agent+r7k2m9.pnz7cojtqbroehsl@in.example.com"
    assert read_reply(settings(), made, ANN) == "r7k2m9"


def test_an_address_survives_capitals_and_angle_brackets() -> None:
    made = reply_address(settings(), "r7k2m9", ANN)
    assert made is not None
    assert read_reply(settings(), f"<{made.upper()}>", "ANN@EXAMPLE.COM") == "r7k2m9"


@pytest.mark.parametrize("at", range(len("r7k2m9.pnz7cojtqbroehsl")))
def test_no_character_of_a_token_can_be_changed(at: int) -> None:
    token = "r7k2m9.pnz7cojtqbroehsl"
    forged = token[:at] + ("x" if token[at] != "x" else "y") + token[at + 1 :]
    assert read_reply(settings(), f"agent+{forged}@in.example.com", ANN) in (False, None)


def test_a_token_is_of_no_use_to_another_sender_and_known_to_be_that_of_its_own() -> None:
    made = reply_address(settings(), "r7k2m9", ANN)
    assert made is not None
    assert read_reply(settings(), made, "mallory@example.com") is False
    token = reply_token(settings(), made)
    assert token is not None and token.given_to(settings(), ANN) and not token.given_to(settings(), "")
    assert token.mac not in repr(token)


@pytest.mark.parametrize(
    "address",
    ["", "@", "agent@in.example.com", "agent+x@in.example.com", "agent+.x@in.example.com", "agent+x.@in.example.com",
     "agent+r7k2m9.pnz7cojtqbroehsl@example.com", "bounce+r7k2m9.pnz7cojtqbroehsl@in.example.com"],
)  # fmt: skip
def test_other_addresses_are_none_of_ours(address: str) -> None:
    assert read_reply(settings(), address, ANN) is None and read_bounce(settings(), address) is None


def test_a_new_secret_in_front_keeps_old_addresses_alive_until_the_old_one_goes() -> None:
    new = "another-key-0123456789abcdef012345"
    made = reply_address(settings(), "r7k2m9", ANN)
    assert made is not None
    assert read_reply(settings(new, KEY), made, ANN) == "r7k2m9"
    assert read_reply(settings(new), made, ANN) is False


@pytest.mark.parametrize("separator", ["+", "-"])
def test_a_bounce_address_of_a_real_letter_is_read_back_and_short_enough(separator: str) -> None:
    here = settings(mail_in_separator=separator)
    letter = str(uuid4())
    bounces, answers = bounce_address(here, letter), reply_address(here, letter, ANN)
    assert bounces is not None and answers is not None
    assert read_bounce(here, bounces.upper()) == letter
    assert read_reply(here, answers, ANN) == letter
    assert max(len(made.partition("@")[0]) for made in (bounces, answers)) <= 64
    assert read_bounce(here, bounces.replace("bounce", "agent")) is None
    assert read_bounce(here, answers.replace("agent", "bounce")) is None, "the purpose is signed too"


def test_nothing_is_made_where_no_mail_can_come_in() -> None:
    for here in (settings(mail_in_domain=None), settings(link_secrets=())):
        assert reply_address(here, "r7k2m9", ANN) is None and bounce_address(here, "r7k2m9") is None
        assert not read_reply(here, "agent+r7k2m9.pnz7cojtqbroehsl@in.example.com", ANN)


def test_a_local_part_over_64_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="64"):
        reply_address(settings(), "x" * 60, ANN)
