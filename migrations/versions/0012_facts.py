"""Facts: the ids, numbers and links that each task has seen.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the table. Its key is all that is looked up; tasks that run already know what comes from here on, and what
    their newest events hold.
    """
    op.execute("""
        CREATE TABLE facts (
            task_id uuid NOT NULL REFERENCES agent_tasks (id) ON DELETE CASCADE,
            token text COLLATE "C" NOT NULL,
            seq int NOT NULL,
            known bool NOT NULL,
            told bool NOT NULL,
            PRIMARY KEY (task_id, token)
        );
    """)


def downgrade() -> None:
    """Drop it: code that does not know it asks nobody where an id comes from."""
    op.execute("DROP TABLE facts")
