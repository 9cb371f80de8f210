"""A third kind of switch, which stops what is new, and the way to the open task of a business entity.

Expand only: older code throws the switches it knows, and the index serves newer code alone.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Widen the check, add the index."""
    op.execute("""
        ALTER TABLE switches DROP CONSTRAINT switches_kind_check,
            ADD CONSTRAINT switches_kind_check CHECK (kind IN ('pause', 'freeze', 'intake'));
        CREATE INDEX agent_tasks_entity ON agent_tasks (tenant, agent, business_entity_id)
         WHERE business_entity_id IS NOT NULL;
    """)


def downgrade() -> None:
    """Lift what older code does not know, and drop the index."""
    op.execute("""
        DROP INDEX agent_tasks_entity;
        DELETE FROM switches WHERE kind = 'intake';
        ALTER TABLE switches DROP CONSTRAINT switches_kind_check,
            ADD CONSTRAINT switches_kind_check CHECK (kind IN ('pause', 'freeze'));
    """)
