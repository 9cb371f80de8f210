"""Which model for which role, pinned and priced, or refused with what to do."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.agents.notes.agent import agent
from twelvefold.agent import Agent
from twelvefold.budget import Budget
from twelvefold.errors import DeclarationError
from workers.checkout import checked_out
from workers.prices import Price, listed
from workers.roster import roster
from workers.settings import ConfigurationError, Settings, load

PLACES = {"DATABASE_URL": "postgresql://x", "BROKER_URL": "redis://x"}


def settings(**more: Any) -> Settings:
    """Settings that name a database."""
    return Settings(database_url=SecretStr("x"), broker_url=SecretStr("x"), **more)


def test_a_role_without_a_model_of_its_own_is_served_by_that_of_decide() -> None:
    given = roster(settings(models={"decide": ("a", "b"), "summarise": ("small", "a")}))
    assert given.models("decide") == given.models("verify") == ("a", "b")
    assert given.models("summarise") == ("small", "a")
    assert given.models("decide", own="mine") == ("mine", "b"), "an agent's own model comes first where it decides"
    assert given.models("summarise", own="mine") == ("small", "a")
    assert roster(settings(model="only")).models("plan") == ("only",)


@pytest.mark.parametrize("name", ["gpt-5-mini", "gpt-4o", "chatgpt-4o-latest", "gpt-4.1-latest"])
def test_a_name_that_may_be_another_model_tomorrow_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=r"may be another one tomorrow.*2025-08-07"):
        roster(settings(model=name, price_in=1)).check([agent], elsewhere=False)


def test_a_server_of_ones_own_names_models_as_it_likes_but_for_latest() -> None:
    roster(settings(model="qwen3-4b", price_in=0)).check([agent], elsewhere=True)
    with pytest.raises(DeclarationError, match="qwen3:latest"):
        roster(settings(model="qwen3:latest", price_in=0)).check([agent], elsewhere=True)
    with pytest.raises(DeclarationError, match="gpt-5-mini"):
        roster(settings(models={"verify": ("gpt-5-mini",)}, price_in=0)).check([agent], elsewhere=False)


def test_a_model_without_a_price_is_refused_where_money_is_limited() -> None:
    unpriced = roster(settings(model="my-model-2026-01-01"))
    with pytest.raises(DeclarationError, match=r"has no price.*TWELVEFOLD_PRICES"):
        unpriced.check([agent], elsewhere=True)
    free = Agent(name="free", tools=[], prompt="x.md", budget=Budget(usd=Decimal(0)))
    unpriced.check([free], elsewhere=True)
    own = roster(settings(model="m", prices={"m": {"in": "2", "out": "4"}}))
    own.check([agent], elsewhere=True)
    assert own.price("m").of(500_000, 250_000) == Decimal(2)


def test_the_default_model_is_pinned_and_priced() -> None:
    roster(settings()).check([agent], elsewhere=False)
    assert all(price.tokens_out >= price.tokens_in > 0 for price in listed().values())


def test_what_an_operator_says_every_model_costs_goes_before_the_list() -> None:
    given = roster(settings(price_in=Decimal(7), prices={"m": {"in": 1, "out": 1}}))
    assert given.price("gpt-5-mini-2025-08-07") == given.price("x") == Price(tokens_in=Decimal(7))
    assert given.price("m").tokens_in == 1


def test_models_prices_limits_and_days_are_read_from_the_environment() -> None:
    found = load({
        **PLACES, "TWELVEFOLD_MODELS": '{"summarise": ["a", "b"]}', "TWELVEFOLD_PRICES": '{"a": {"in": 1, "out": "2"}}',
        "TWELVEFOLD_MODEL_LIMITS": '{"requests_per_second": 10}', "TWELVEFOLD_DAILY": '{"agent:notes": {"usd": "5"}}',
    })  # fmt: skip
    assert found.models["summarise"] == ("a", "b") and found.prices["a"].tokens_out == 2
    assert found.model_limits.requests_per_second == 10 and found.daily["agent:notes"].usd == 5
    for name, wrong in {
        "MODELS": '{"think": ["a"]}', "PRICES": '{"a": 1}', "MODEL_LIMITS": '{"per_day": 1}', "DAILY": '{"bob": {}}',
        "MODEL_PROFILE": "mine", "COMMIT": "main",
    }.items():  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"TWELVEFOLD_{name}"):
            load({**PLACES, f"TWELVEFOLD_{name}": wrong})


def test_the_commit_of_a_checkout_is_read_from_its_files(tmp_path: Path) -> None:
    commit, other = "a1" * 20, "b2" * 20
    assert checked_out(tmp_path) == ""
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{other} refs/heads/main\n")
    assert checked_out(tmp_path) == other
    (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    assert checked_out(tmp_path) == commit
    (git / "HEAD").write_text(f"{other}\n")
    assert checked_out(tmp_path) == other
