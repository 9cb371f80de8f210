"""Settings: one frozen value from the environment, every problem told at once, secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_a_secret_may_stand_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-very-secret\n")
    settings = load({**ENOUGH, "OPENAI_API_KEY_FILE": str(file)})
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-very-secret"
    assert "very-secret" not in f"{settings!r} {settings.masked()}"
    assert "postgresql" not in settings.masked()["database_url"]
