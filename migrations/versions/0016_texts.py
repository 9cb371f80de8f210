"""The texts that requests to a model were made of, and what probes found out about endpoints.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Shared texts, which are code, and each task's own, which can be erased with it."""
    op.execute("""
        CREATE TABLE texts (
            hash text PRIMARY KEY,
            text text NOT NULL,
            source text NOT NULL DEFAULT '',
            commit text NOT NULL DEFAULT '',
            created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE TABLE renderings (
            task_id uuid NOT NULL REFERENCES agent_tasks (id),
            hash text NOT NULL,
            seq int NOT NULL,
            text text NOT NULL,
            PRIMARY KEY (task_id, hash)
        );
        CREATE TABLE endpoints (
            base_url text PRIMARY KEY,
            profile json NOT NULL,
            probed_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        REVOKE UPDATE, DELETE ON texts FROM twelvefold_app;
        REVOKE UPDATE ON renderings FROM twelvefold_app;
    """)


def downgrade() -> None:
    """Drop them: requests of the past cannot be shown any more."""
    op.execute("DROP TABLE endpoints, renderings, texts")
