"""The table of the agent `deploy`: which release of which repository was deployed, once each. Expand only."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.execute("""
        CREATE TABLE deployments (
            id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            repository text NOT NULL,
            tag text NOT NULL,
            summary text NOT NULL,
            recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            UNIQUE (repository, tag)
        )
    """)


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP TABLE deployments")
