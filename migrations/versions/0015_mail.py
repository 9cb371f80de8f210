"""Mail that comes in: how far each mailbox is read, which addresses are not reached, and indexes to find threads by.

Expand only.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the tables and indexes."""
    op.execute("""
        CREATE TABLE mailboxes (
            tenant text NOT NULL,
            name text NOT NULL,
            uidvalidity bigint NOT NULL,
            uid bigint NOT NULL,
            read_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, name)
        );
        CREATE TABLE undeliverable (
            tenant text NOT NULL,
            address text NOT NULL,
            letter uuid NOT NULL,
            since timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, address)
        );
        GRANT SELECT, INSERT, UPDATE, DELETE ON mailboxes, undeliverable TO twelvefold_app;
        ALTER TABLE approvals DROP CONSTRAINT approvals_decided_how_check,
            ADD CONSTRAINT approvals_decided_how_check
            CHECK (decided_how IN ('link', 'session', 'override', 'reply'));
        ALTER TABLE votes DROP CONSTRAINT votes_how_check,
            ADD CONSTRAINT votes_how_check CHECK (how IN ('link', 'session', 'override', 'reply'));
        CREATE INDEX arrivals_mail_sender ON arrivals (tenant, sender, received_at) WHERE source = 'email';
        CREATE INDEX arrivals_mail_thread ON arrivals (tenant, conversation, received_at) WHERE source = 'email';
    """)


def downgrade() -> None:
    """Drop them: mailboxes are read anew, and what was read already is known by its key."""
    op.execute("""
        UPDATE approvals SET decided_how = 'link' WHERE decided_how = 'reply';
        ALTER TABLE approvals DROP CONSTRAINT approvals_decided_how_check,
            ADD CONSTRAINT approvals_decided_how_check CHECK (decided_how IN ('link', 'session', 'override'));
        UPDATE votes SET how = 'link' WHERE how = 'reply';
        ALTER TABLE votes DROP CONSTRAINT votes_how_check,
            ADD CONSTRAINT votes_how_check CHECK (how IN ('link', 'session', 'override'));
        DROP INDEX arrivals_mail_thread;
        DROP INDEX arrivals_mail_sender;
        DROP TABLE undeliverable;
        DROP TABLE mailboxes;
    """)
