"""Memories: what agents keep about a subject beyond a task.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the table. The same text is kept once for a subject; which call kept it is no foreign key, since a memory
    outlives its task.
    """
    op.execute("""
        CREATE TABLE memories (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            subject text NOT NULL,
            text text NOT NULL,
            words tsvector GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED,
            agent text NOT NULL,
            task_id uuid NOT NULL,
            seq int NOT NULL,
            sender text NOT NULL,
            tainted bool NOT NULL,
            at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE UNIQUE INDEX memories_once ON memories (tenant, subject, md5(text));
        CREATE INDEX memories_newest ON memories (tenant, subject, id);
    """)


def downgrade() -> None:
    """Drop it: what was kept is gone."""
    op.execute("DROP TABLE memories")
