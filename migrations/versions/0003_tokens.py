"""Tokens of the control API: the hash of each secret, whose it is and what it may do. And for those who look:
the way from a task to its letters, and the revision of the schema. Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

TABLE = """
CREATE TABLE tokens (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash text NOT NULL UNIQUE CHECK (length(hash) = 64),
    tenant text NOT NULL,
    principal text NOT NULL,
    roles text[] NOT NULL
        CHECK (roles <@ ARRAY['viewer', 'reader', 'requester', 'approver', 'operator', 'admin'] AND roles <> '{}'),
    agents text[] CHECK (agents <> '{}'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
COMMENT ON COLUMN tokens.hash IS 'sha256 of a random secret of 256 bits; no tenant in its key, as it is what finds one';
COMMENT ON COLUMN tokens.agents IS 'null: every agent of the tenant';
REVOKE DELETE, TRUNCATE ON tokens FROM twelvefold_app;
REVOKE ALL ON tokens FROM twelvefold_reader;
CREATE INDEX outbox_task ON outbox (task_id);
GRANT SELECT ON alembic_version TO twelvefold_app;
"""


def upgrade() -> None:
    """Create them."""
    op.execute(TABLE)


def downgrade() -> None:
    """Drop them: every token ceases to work."""
    op.execute("REVOKE SELECT ON alembic_version FROM twelvefold_app; DROP INDEX outbox_task; DROP TABLE tokens")
