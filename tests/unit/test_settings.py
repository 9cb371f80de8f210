"""Settings: one frozen value from the environment, every problem told at once, secrets never shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.migrate import ROOT
from console.sources import sources
from triggers.declared import RESERVED
from triggers.proofs import Signed
from workers.settings import ConfigurationError, load

ENOUGH = {"DATABASE_URL": "postgresql://app@localhost/x", "BROKER_URL": "redis://localhost/0"}


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        load({"TWELVEFOLD_SLOTS": "0", "SMTP_TLS": "perhaps"})
    for name in ("DATABASE_URL", "BROKER_URL", "TWELVEFOLD_SLOTS", "SMTP_TLS"):
        assert name in str(told.value)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"TWELVEFOLD_DEAD_AFTER": "3"}, "TWELVEFOLD_DEAD_AFTER"),
        ({"TWELVEFOLD_MODEL_TIMEOUT": "180"}, "TWELVEFOLD_MODEL_TIMEOUT"),
    ],
)
def test_times_that_do_not_nest_are_refused(change: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        load({**ENOUGH, **change})


def test_links_need_an_address_that_people_can_open_and_secrets_that_cannot_be_guessed() -> None:
    long = "x" * 32
    with pytest.raises(ConfigurationError) as told:
        load({**ENOUGH, "TWELVEFOLD_PUBLIC_URL": "fleet.example/#x", "TWELVEFOLD_LINK_SECRETS": f"{long},short"})
    assert "TWELVEFOLD_PUBLIC_URL" in str(told.value) and "TWELVEFOLD_LINK_SECRETS" in str(told.value)
    assert "short" not in str(told.value).replace("shorter", "") and "fleet.example" not in str(told.value)


def test_link_secrets_are_a_list_of_which_none_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("a" * 32 + ", " + "b" * 32 + "\n")
    settings = load({
        **ENOUGH, "TWELVEFOLD_PUBLIC_URL": "https://fleet.example", "TWELVEFOLD_LINK_SECRETS_FILE": str(file),
    })  # fmt: skip
    assert [secret.get_secret_value() for secret in settings.link_secrets] == ["a" * 32, "b" * 32]
    assert "aaa" not in settings.masked()["link_secrets"] and "bbb" not in repr(settings)


def test_a_secret_may_stand_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-very-secret\n")
    settings = load({**ENOUGH, "OPENAI_API_KEY_FILE": str(file)})
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-very-secret"
    assert "very-secret" not in f"{settings!r} {settings.masked()}"
    assert "postgresql" not in settings.masked()["database_url"]


SHOP = '{"shop": {"header": "X-Shop-Signature", "timestamp_header": "X-Shop-Time", "signed": "{timestamp}.{body}"}}'


def test_a_declared_source_has_its_secrets_in_a_variable_or_a_file_and_shows_none(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("the-new-secret-of-the-shop, the-old-secret-of-the-shop\n")
    by_file = {"SHOP_WEBHOOK_SECRETS_FILE": str(file)}
    by_value = {"SHOP_WEBHOOK_SECRETS": "the-new-secret-of-the-shop,the-old-secret-of-the-shop"}
    for given in (by_file, by_value):
        settings = load({**ENOUGH, "TWELVEFOLD_WEBHOOK_SOURCES": SHOP, **given})
        shop = sources(settings)["shop"]
        assert isinstance(shop.verifier, Signed)
        assert shop.verifier.secrets == ("the-new-secret-of-the-shop", "the-old-secret-of-the-shop")
        assert shop.verifier.schemes[0].window == shop.verifier.schemes[0].ahead == 300
        assert shop.tenant == "default"
        assert "secret-of" not in f"{settings!r} {settings.masked()} {shop!r}"


def test_a_source_may_belong_to_another_tenant() -> None:
    declared = '{"shop": {"header": "X-S", "tenant": "acme"}, "bank": {"header": "X-S"}}'
    secrets = {"SHOP_WEBHOOK_SECRETS": "s" * 16, "BANK_WEBHOOK_SECRETS": "b" * 16}
    settings = load({**ENOUGH, "TWELVEFOLD_WEBHOOK_SOURCES": declared, "TWELVEFOLD_TENANT": "us", **secrets})
    assert {name: source.tenant for name, source in sources(settings).items()} == {"shop": "acme", "bank": "us"}


def test_every_mistake_in_every_source_is_told_at_once_and_no_secret_with_it() -> None:
    wrong = {
        "a": {"header": "X S", "algorithm": "md5", "key_pointer": "id", "signed": "{timestamp}{body}", "typ": "x"},
        "b": {"header": "X-S", "timestamp_header": "X-T"},
        "c": {"header": "X-S", "secrets": ["in-the-wrong-place-altogether"]},
        "operate": {"header": "X-S"},
        "Nice Name": {"header": "X-S"},
        "d": "X-S",
        "e": {"header": "X-S"},
        "f": {"header": "X-S"},
    }
    environment = {
        "TWELVEFOLD_WEBHOOK_SOURCES": json.dumps(wrong), "TWELVEFOLD_SLOTS": "0", "A_WEBHOOK_SECRETS": "hunter2",
        "B_WEBHOOK_SECRETS": "b" * 16, "E_WEBHOOK_SECRETS_FILE": "/nowhere/secret",
    }  # fmt: skip
    with pytest.raises(ConfigurationError) as told:
        load({**ENOUGH, **environment})
    text = str(told.value)
    for part in (
        "TWELVEFOLD_SLOTS", "SOURCES a.header: Value error, that is no name of a header", "SOURCES a.algorithm",
        "SOURCES a.key_pointer", "SOURCES a.signed", "SOURCES a.typ", "A_WEBHOOK_SECRETS: Value error, a secret has at",
        "SOURCES b.signed", "secrets of c belong into C_WEBHOOK_SECRETS", "the name operate is taken",
        "lower-case letters", "SOURCES d:", "E_WEBHOOK_SECRETS_FILE: /nowhere/secret", "F_WEBHOOK_SECRETS: Field",
    ):  # fmt: skip
        assert part in text, text
    assert "hunter2" not in text
    assert "wrong-place" not in text


@pytest.mark.parametrize("text", ["{", "[]", '"shop"'])
def test_sources_that_are_no_json_object_are_refused_with_an_example_or_the_place(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SOURCES: (.*line 1 column|.*X-Shop-Signature)"):
        load({**ENOUGH, "TWELVEFOLD_WEBHOOK_SOURCES": text})


def test_no_sender_can_use_a_name_that_stands_for_ourselves_in_the_arrivals() -> None:
    code = [path.read_text() for folder in ("workers", "console") for path in (ROOT / folder).rglob("*.py")]
    ours = {name for text in code for name in re.findall(r"""\bsource="([a-z-]+)"|'(delegate)', c\.id""", text)}
    assert {"operate", "task", "delegate"} <= {name for pair in ours for name in pair if name} <= RESERVED
