"""Bring a database to the newest schema, or back: Alembic, driven from code so that no second configuration exists."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

ROOT = Path(__file__).resolve().parent.parent


def config(owner_url: str) -> Config:
    """Alembic's configuration for this database."""
    found = Config()
    found.set_main_option("script_location", str(ROOT / "migrations"))
    found.set_main_option("sqlalchemy.url", owner_url.replace("%", "%%"))
    return found


def migrate(owner_url: str, to: str = "head") -> None:
    """Upgrade to `to`. Safe to run by several at once and again."""
    command.upgrade(config(owner_url), to)


def downgrade(owner_url: str, to: str = "base") -> None:
    """Downgrade to `to`."""
    command.downgrade(config(owner_url), to)
