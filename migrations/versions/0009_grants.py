"""Grants: approvals that hold for more than one call, for a time.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table; a grant is never deleted, so that the log's word on it can be followed."""
    op.execute("""
        CREATE TABLE grants (
            id uuid PRIMARY KEY,
            tenant text NOT NULL,
            agent text NOT NULL,
            tool text NOT NULL,
            task_id uuid REFERENCES agent_tasks (id),
            pattern json NOT NULL,
            rule text NOT NULL,
            by text NOT NULL,
            until timestamptz NOT NULL,
            used int NOT NULL DEFAULT 0,
            used_at timestamptz,
            revoked_at timestamptz,
            revoked_by text,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX grants_holding ON grants (tenant, agent, until) WHERE revoked_at IS NULL;
        REVOKE DELETE ON grants FROM twelvefold_app;
    """)


def downgrade() -> None:
    """Drop it: every call is asked about again."""
    op.execute("DROP TABLE grants")
