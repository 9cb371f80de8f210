"""Letters that were overtaken, those whose sending may be repeated or looked up, and the pace of each destination.

Expand only: older code neither overtakes nor paces, and its letters count from when they were written.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the columns and the table."""
    op.execute("""
        ALTER TABLE outbox
            ADD COLUMN first_at timestamptz,
            ADD COLUMN overtaken_at timestamptz,
            ADD COLUMN again boolean NOT NULL DEFAULT false,
            ADD COLUMN doubtful boolean NOT NULL DEFAULT false;
        CREATE INDEX outbox_dead ON outbox (settled_at) WHERE state IN ('failed', 'unknown');
        CREATE TABLE paces (
            channel text NOT NULL,
            destination text NOT NULL,
            free_at timestamptz NOT NULL,
            closed_at timestamptz,
            PRIMARY KEY (channel, destination)
        ) WITH (fillfactor = 50);
    """)


def downgrade() -> None:
    """Drop them: letters in doubt become `unknown`, as older code would have said at once."""
    op.execute("""
        UPDATE outbox SET state = 'unknown', settled_at = clock_timestamp() WHERE doubtful AND state = 'pending';
        DROP TABLE paces;
        DROP INDEX outbox_dead;
        ALTER TABLE outbox DROP COLUMN first_at, DROP COLUMN overtaken_at, DROP COLUMN again, DROP COLUMN doubtful;
    """)
