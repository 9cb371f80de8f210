"""Tokens of the control API: who is let in, and that no secret is kept."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from console.cli import cli
from workers.store import tokens
from workers.store.database import Database


@pytest.fixture
def db(fresh_database: Any) -> Any:
    """The fleet's database."""
    found = Database(fresh_database.app, size=2)
    yield found
    found.close()


def test_a_token_is_found_by_its_secret_alone_until_it_is_revoked(db: Database) -> None:
    number, secret = tokens.add(db, tenant="t1", principal="ann", roles=["approver", "reader"], agents=["notes"])
    found = tokens.find(db, secret)
    assert found is not None
    assert (found.id, found.tenant, found.principal) == (number, "t1", "ann")
    assert found.has("approver") and found.has("operator", "reader") and not found.has("operator")
    assert found.may_use("notes") and not found.may_use("refunds")
    assert tokens.find(db, secret[:-1]) is None and tokens.find(db, "") is None
    assert not tokens.revoke(db, "t2", number), "another tenant's token is not there"
    assert tokens.find(db, secret) == found
    assert tokens.revoke(db, "t1", number) and tokens.revoke(db, "t1", number)
    assert tokens.find(db, secret) is None


def test_an_expired_token_is_none(db: Database) -> None:
    _, secret = tokens.add(db, tenant="t1", principal="ann", roles=["reader"], lasts=timedelta(0))
    assert tokens.find(db, secret) is None
    assert [row["state"] for row in tokens.listed(db, "t1")] == ["expired"]


def test_an_admin_has_every_role_and_a_token_without_agents_every_agent(db: Database) -> None:
    _, secret = tokens.add(db, tenant="t1", principal="ann", roles=["admin"])
    found = tokens.find(db, secret)
    assert found is not None and found.has("operator") and found.may_use("whatever")


def test_the_database_takes_no_unknown_role_and_lets_nobody_delete_a_token(fresh_database: Any, db: Database) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        tokens.add(db, tenant="t1", principal="ann", roles=["root"])  # type: ignore[list-item]
    with pytest.raises(psycopg.errors.CheckViolation):
        tokens.add(db, tenant="t1", principal="ann", roles=[])
    with pytest.raises(psycopg.errors.InsufficientPrivilege), db.connection() as connection:
        connection.execute("DELETE FROM tokens")
    reader = psycopg.connect(fresh_database.reader.replace("+psycopg", ""))
    with pytest.raises(psycopg.errors.InsufficientPrivilege), reader:
        reader.execute("SELECT hash FROM tokens")


def test_the_verbs_print_a_secret_once_list_without_it_and_revoke(
    fresh_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_URL", fresh_database.app)
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["token", *arguments, "--home", str(tmp_path)])

    made = run("new", "ann@example.org", "--role", "approver", "--role", "requester", "--agent", "deploy")
    assert made.exit_code == 0
    secret = made.stdout.strip()
    assert secret.startswith("tf_") and len(secret) == 46
    shown = run("list")
    assert "ann@example.org" in shown.output and "approver,requester" in shown.output and "deploy" in shown.output
    assert secret not in shown.output
    rows = json.loads(run("list", "--json").output)
    assert [(row["id"], row["state"]) for row in rows] == [(1, "valid")] and "hash" not in rows[0]
    assert run("revoke", "1").exit_code == 0
    assert json.loads(run("list", "--json").output)[0]["state"] == "revoked"
    assert run("revoke", "7").exit_code == 3
    unknown = run("new", "ann", "--role", "reader", "--agent", "deploj")
    assert unknown.exit_code == 3 and "deploj" in unknown.output
    assert run("new", "ann", "--role", "root").exit_code == 2
    assert run("new", "", "--role", "reader").exit_code == 2
    assert json.loads(run("new", "bob", "--role", "reader", "--json").output)["token"].startswith("tf_")


def test_what_is_stored_of_a_token_is_no_secret(db: Database) -> None:
    _, secret = tokens.add(db, tenant="t1", principal="ann", roles=["reader"])
    stored = str(db.rows("SELECT t::text FROM tokens t"))
    assert "ann" in stored and secret not in stored and secret.removeprefix("tf_") not in stored
