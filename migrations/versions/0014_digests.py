"""Who wants no more digests of an agent.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the table."""
    op.execute("""
        CREATE TABLE unsubscribed (
            tenant text NOT NULL,
            agent text NOT NULL,
            recipient text NOT NULL,
            at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, agent, recipient)
        );
    """)


def downgrade() -> None:
    """Drop it: digests go to everybody again."""
    op.execute("DROP TABLE unsubscribed")
