"""What is spent on models in a day, and the limits that all clients of a model's account share.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Steps append to `spend`, the sweep rolls it up; `model_limits` is one row an account."""
    op.execute("""
        CREATE TABLE spend (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            agent text NOT NULL,
            day date NOT NULL,
            tokens bigint NOT NULL,
            usd numeric NOT NULL
        );
        CREATE INDEX spend_tail ON spend (tenant, day);
        CREATE TABLE spend_days (
            tenant text NOT NULL,
            agent text NOT NULL,
            day date NOT NULL,
            tokens bigint NOT NULL,
            usd numeric NOT NULL,
            PRIMARY KEY (tenant, day, agent)
        );
        CREATE TABLE spend_notices (
            tenant text NOT NULL,
            scope text NOT NULL,
            day date NOT NULL,
            dimension text NOT NULL,
            PRIMARY KEY (tenant, scope, day, dimension)
        );
        CREATE TABLE allowances (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            scope text NOT NULL,
            day date NOT NULL,
            tokens bigint NOT NULL,
            usd numeric NOT NULL,
            by text NOT NULL,
            at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX allowances_day ON allowances (tenant, scope, day);
        CREATE TABLE model_limits (
            account text PRIMARY KEY,
            at timestamptz NOT NULL DEFAULT clock_timestamp(),
            debts float8[] NOT NULL DEFAULT ARRAY[0, 0, 0, 0],
            wait float8 NOT NULL DEFAULT 0,
            failures int NOT NULL DEFAULT 0,
            closed_until timestamptz
        ) WITH (fillfactor = 50);
        REVOKE UPDATE, DELETE ON allowances FROM twelvefold_app;
    """)


def downgrade() -> None:
    """Drop them: nothing limits a day, and each process asks as it likes."""
    op.execute("DROP TABLE model_limits, allowances, spend_notices, spend_days, spend")
