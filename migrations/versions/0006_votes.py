"""Approvals by several people: one row for each vote, the states between question and decision, who edited.

Expand only: older code opens `pending` rows, and moves them as it did.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

STATES = "'pending', 'approved', 'rejected', 'expired', 'superseded', 'stale'"
OPEN = "'pending', 'reminded', 'escalated', 'more_info'"


def upgrade() -> None:
    """Add the table, the states and the columns; at most one question of a task is open in any of the open states."""
    op.execute(f"""
        CREATE TABLE votes (
            tenant text NOT NULL,
            task_id uuid NOT NULL,
            call int NOT NULL,
            asked int NOT NULL,
            by text NOT NULL,
            how text NOT NULL CHECK (how IN ('link', 'session', 'override')),
            comment text NOT NULL DEFAULT '',
            at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, task_id, call, asked, by),
            FOREIGN KEY (tenant, task_id, call, asked) REFERENCES approvals (tenant, task_id, call, asked)
        );
        REVOKE UPDATE, DELETE ON votes FROM twelvefold_app;
        ALTER TABLE approvals
            DROP CONSTRAINT approvals_state_check,
            ADD CONSTRAINT approvals_state_check
                CHECK (state IN ({STATES}, 'reminded', 'escalated', 'more_info', 'approved_with_edits')),
            ADD COLUMN editor text,
            ADD COLUMN edited text,
            ADD COLUMN escalated_at timestamptz,
            ADD COLUMN more_info_at timestamptz;
        DROP INDEX approvals_one_open;
        CREATE UNIQUE INDEX approvals_one_open ON approvals (tenant, task_id) WHERE state IN ({OPEN});
    """)


def downgrade() -> None:
    """Back to one decision a question; an open one is pending again, an edited approval is an approval."""
    op.execute(f"""
        DROP INDEX approvals_one_open;
        UPDATE approvals SET state = 'pending' WHERE state IN ({OPEN});
        UPDATE approvals SET state = 'approved' WHERE state = 'approved_with_edits';
        CREATE UNIQUE INDEX approvals_one_open ON approvals (tenant, task_id) WHERE state = 'pending';
        ALTER TABLE approvals
            DROP CONSTRAINT approvals_state_check,
            ADD CONSTRAINT approvals_state_check CHECK (state IN ({STATES})),
            DROP COLUMN editor, DROP COLUMN edited, DROP COLUMN escalated_at, DROP COLUMN more_info_at;
        DROP TABLE votes;
    """)
