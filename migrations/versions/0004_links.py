"""Decisions by links in mails: how the person was known, and wrong words counted; letters of a conversation, in order.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns, with defaults that older code need not know, and the index."""
    op.execute("""
        ALTER TABLE approvals
            ADD COLUMN decided_how text CHECK (decided_how IN ('link', 'session', 'override')),
            ADD COLUMN wrong_words jsonb NOT NULL DEFAULT '{}';
        CREATE INDEX outbox_conversation ON outbox (conversation, n);
    """)


def downgrade() -> None:
    """Drop them."""
    op.execute("""
        DROP INDEX outbox_conversation;
        ALTER TABLE approvals DROP COLUMN wrong_words, DROP COLUMN decided_how;
    """)
