"""What belongs to a conversation outside is found by it.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the indexes."""
    op.execute("""
        CREATE INDEX arrivals_conversation ON arrivals (tenant, conversation, id)
         WHERE conversation IS NOT NULL AND task_id IS NOT NULL;
        CREATE INDEX outbox_receipt ON outbox (tenant, channel, receipt) WHERE receipt IS NOT NULL;
    """)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX arrivals_conversation; DROP INDEX outbox_receipt;")
