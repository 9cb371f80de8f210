"""Schedules: what is opened at which times, and up to when every time is accounted for.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the table, and the way to what is due."""
    op.execute("""
        CREATE TABLE schedules (
            tenant text NOT NULL,
            agent text NOT NULL,
            name text NOT NULL,
            cron text NOT NULL,
            tz text NOT NULL,
            dst text NOT NULL CHECK (dst IN ('vixie', 'skip', 'utc')),
            overlap text NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'allow')),
            catch_up text NOT NULL CHECK (catch_up IN ('latest', 'all', 'none')),
            window_s int NOT NULL CHECK (window_s >= 0),
            jitter_s int NOT NULL CHECK (jitter_s >= 0),
            event json,
            declared boolean NOT NULL,
            since timestamptz NOT NULL,
            next_fire_at timestamptz NOT NULL,
            held_fire timestamptz,
            opened uuid[] NOT NULL DEFAULT '{}',
            paused_at timestamptz,
            paused_by text,
            disabled_at timestamptz,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, agent, name)
        ) WITH (fillfactor = 60);
        CREATE INDEX schedules_due ON schedules (next_fire_at) WHERE disabled_at IS NULL;
        REVOKE DELETE ON schedules FROM twelvefold_app;
    """)


def downgrade() -> None:
    """Drop it: nothing fires any more."""
    op.execute("DROP TABLE schedules")
