"""The doctor: what is wrong is found, and each line says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from console.cli import cli
from console.doctor import Finding, examine
from console.embedded import MailCatcher, Postgres, Valkey
from tests.harness import NO_BROKER
from workers.ids import uuid7
from workers.settings import Settings
from workers.store import alive
from workers.store.database import Database


def found(settings: Settings) -> dict[str, Finding]:
    """The findings by what was looked at."""
    return {finding.what: finding for finding in examine(settings)}


def good(database: Any, broker: str = NO_BROKER, **more: Any) -> Settings:
    """Settings that name a database."""
    return Settings(
        database_url=SecretStr(database.app), broker_url=SecretStr(broker), agent_modules="tests.agents", **more
    )


def test_where_everything_is_there_nothing_is_wrong(fresh_database: Any, valkey: Valkey, mail: MailCatcher) -> None:
    with_links: Any = {"public_url": "https://fleet.example", "link_secrets": (SecretStr("s" * 32),)}
    settings = good(
        fresh_database, valkey.url, smtp_host=mail.host, smtp_port=mail.port, smtp_tls="none",
        openai_api_key=SecretStr("sk-x"), mail_in_domain="in.example.com", mail_authserv="mx.example.net", **with_links,
    )  # fmt: skip
    db = Database(fresh_database.app, size=1)
    alive.register(db, uuid7(), {"answers": 4, "steps": 4, "delivery": 4}, "{}")
    db.close()
    states = {name: finding.state for name, finding in found(settings).items()}
    wanted = ("database", "role", "workers", "schedules", "broker", "agents", "model", "mail", "mail-in", "links")
    assert states == dict.fromkeys(wanted, "ok")


def test_what_is_missing_is_named_with_the_way_to_mend_it(
    fresh_database: Any, postgres: Postgres, valkey: Valkey, mail: MailCatcher
) -> None:
    plain = good(fresh_database)
    seen = found(plain)
    assert seen["workers"].state == "wrong" and "twelvefold worker --lane answers" in seen["workers"].text
    assert seen["broker"].state == "wrong" and "BROKER_URL" in seen["broker"].text
    assert [seen[name].state for name in ("model", "mail", "mail-in", "links")] == ["note"] * 4
    assert "TWELVEFOLD_PUBLIC_URL" in seen["links"].text
    owner = found(plain.model_copy(update={"database_url": SecretStr(fresh_database.owner)}))
    assert owner["role"].state == "wrong" and "rewrite the log" in owner["role"].text
    with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("GRANT SELECT ON alembic_version TO twelvefold_reader")
    reader = found(plain.model_copy(update={"database_url": SecretStr(fresh_database.reader)}))
    assert reader["role"].state == "wrong" and "may not write" in reader["role"].text
    nowhere = found(plain.model_copy(update={"database_url": SecretStr("postgresql://a@127.0.0.1:1/x")}))
    assert nowhere["database"].state == "wrong" and "DATABASE_URL" in nowhere["database"].text
    assert "role" not in nowhere
    agents = found(plain.model_copy(update={"agent_modules": "no_such_package"}))
    assert agents["agents"].state == "wrong"
    for host, port, tls, said in (
        ("127.0.0.1", 1, "none", "does not answer"), (mail.host, mail.port, "starttls", "offers no STARTTLS"),
    ):  # fmt: skip
        change = {"smtp_host": host, "smtp_port": port, "smtp_tls": tls}
        finding = found(plain.model_copy(update=change))["mail"]
        assert finding.state == "wrong" and said in finding.text


def test_a_schema_that_is_missing_or_old_is_told(fresh_database: Any, postgres: Postgres) -> None:
    with psycopg.connect(fresh_database.owner.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        old = found(good(fresh_database))["database"]
        connection.execute("DROP TABLE alembic_version")
        none = found(good(fresh_database))["database"]
    assert old.state == none.state == "wrong"
    assert "0001" in old.text and "missing" in none.text and "twelvefold migrate" in none.text


def test_a_broker_that_evicts_is_wrong(fresh_database: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.doctor.Lanes.policy", lambda _: "allkeys-lru")
    finding = found(good(fresh_database, valkey.url))["broker"]
    assert finding.state == "wrong" and "maxmemory-policy noeviction" in finding.text


def test_the_verb_masks_secrets_and_ends_with_one_when_something_is_wrong(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_URL", fresh_database.app)
    monkeypatch.setenv("BROKER_URL", "redis://:verysecret@127.0.0.1:1/0")
    monkeypatch.setenv("AGENT_MODULES", "tests.agents")
    answer = CliRunner().invoke(cli, ["doctor", "--home", str(tmp_path)])
    assert answer.exit_code == 1
    assert "WRONG broker" in answer.output and "ok    database" in answer.output
    assert "broker_url = **********" in answer.output and "verysecret" not in answer.output
    told = CliRunner().invoke(cli, ["doctor", "--json", "--home", str(tmp_path)])
    assert told.exit_code == 1 and "verysecret" not in told.output
    assert {row["what"] for row in json.loads(told.output)["findings"] if row["state"] == "wrong"} >= {"broker"}
    monkeypatch.delenv("BROKER_URL")
    unset = CliRunner().invoke(cli, ["doctor", "--home", str(tmp_path)])
    assert unset.exit_code == 1 and "BROKER_URL" in unset.output
