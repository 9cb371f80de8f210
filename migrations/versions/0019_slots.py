"""Slots: the places that limits on concurrency and rate have, the key of a task that a limit may be for, and the line
of each tenant in its order.

Expand only: older code takes no slots and leaves the key empty.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the table, the column and the index, none of whose columns a step changes."""
    op.execute("""
        CREATE TABLE slots (
            tenant text NOT NULL,
            scope text NOT NULL,
            n int NOT NULL CHECK (n BETWEEN 1 AND 1000),
            task_id uuid NOT NULL,
            fence bigint NOT NULL,
            until timestamptz,
            PRIMARY KEY (tenant, scope, n)
        ) WITH (fillfactor = 60);
        ALTER TABLE agent_tasks ADD COLUMN flow_key text;
        CREATE INDEX agent_tasks_line ON agent_tasks (tenant, priority DESC, id) WHERE status = 'ready';
    """)


def downgrade() -> None:
    """Drop them: nothing is limited any more."""
    op.execute("DROP INDEX agent_tasks_line; ALTER TABLE agent_tasks DROP COLUMN flow_key; DROP TABLE slots")
