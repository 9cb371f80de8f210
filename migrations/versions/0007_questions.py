"""Questions to people: what kind of question a row is, and the answer. An answer is no approval, and none is an answer.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

STATES = (
    "'pending', 'reminded', 'escalated', 'more_info', 'approved', 'approved_with_edits', 'rejected', 'expired', "
    "'superseded', 'stale'"
)
WAITS = "'approval', 'event', 'timer', 'child', 'retry', 'settle', 'budget', 'operator'"


def upgrade() -> None:
    """Add the columns, with defaults that older code need not know, and the states."""
    op.execute(f"""
        ALTER TABLE approvals
            ADD COLUMN kind text NOT NULL DEFAULT 'approval' CHECK (kind IN ('approval', 'question')),
            ADD COLUMN answer text,
            DROP CONSTRAINT approvals_state_check,
            ADD CONSTRAINT approvals_state_check CHECK (state IN ({STATES}, 'answered')),
            ADD CONSTRAINT approvals_answer_check CHECK ((state = 'answered') = (answer IS NOT NULL)),
            ADD CONSTRAINT approvals_kind_check_state CHECK (
                CASE kind WHEN 'question' THEN state NOT IN ('approved', 'approved_with_edits', 'rejected', 'stale')
                          ELSE state <> 'answered' END
            );
        ALTER TABLE agent_tasks
            DROP CONSTRAINT agent_tasks_waiting_for_check,
            ADD CONSTRAINT agent_tasks_waiting_for_check CHECK (waiting_for IN ({WAITS}, 'answer'));
    """)


def downgrade() -> None:
    """Drop them, and with them what was asked: a question cannot be told as an approval."""
    op.execute(f"""
        DELETE FROM approvals WHERE kind = 'question';
        UPDATE agent_tasks SET waiting_for = 'operator' WHERE waiting_for = 'answer';
        ALTER TABLE agent_tasks
            DROP CONSTRAINT agent_tasks_waiting_for_check,
            ADD CONSTRAINT agent_tasks_waiting_for_check CHECK (waiting_for IN ({WAITS}));
        ALTER TABLE approvals
            DROP CONSTRAINT approvals_kind_check_state,
            DROP CONSTRAINT approvals_answer_check,
            DROP CONSTRAINT approvals_state_check,
            ADD CONSTRAINT approvals_state_check CHECK (state IN ({STATES})),
            DROP COLUMN answer, DROP COLUMN kind;
    """)
