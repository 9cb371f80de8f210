"""Alembic's environment: one linear history, run by the owner under an advisory lock so that two cannot race."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool, text

MIGRATION_LOCK = 12_0001
"""Any constant will do; it must only be the same for everyone who migrates this database."""

url = context.config.get_main_option("sqlalchemy.url")
if not url:
    raise SystemExit("No database given. Run `twelvefold migrate`, which takes it from OWNER_DATABASE_URL.")
engine = create_engine(url, poolclass=pool.NullPool)
with engine.connect() as connection:
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
    connection.execute(text("SET lock_timeout = '5s'"))
    connection.commit()
    context.configure(connection=connection, target_metadata=None, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
engine.dispose()
