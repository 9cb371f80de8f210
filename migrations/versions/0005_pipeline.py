"""What the agent `deploy` owns: the commits that were pushed, and its deployments as runs of the pipeline, by tenant.

A release may be deployed again by another run, so the old key over repository and tag goes. Expand otherwise.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table of commits, and to deployments whose they are, where they went and by which run."""
    op.execute("""
        CREATE TABLE commits (
            id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tenant text NOT NULL,
            repository text NOT NULL,
            sha text NOT NULL,
            author text NOT NULL,
            message text NOT NULL,
            pushed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            UNIQUE (tenant, repository, sha)
        );
        CREATE INDEX commits_newest ON commits (tenant, repository, pushed_at);
        ALTER TABLE deployments
            ADD COLUMN tenant text NOT NULL DEFAULT 'default',
            ADD COLUMN environment text NOT NULL DEFAULT 'production',
            ADD COLUMN run text NOT NULL DEFAULT 'before-' || gen_random_uuid(),
            DROP CONSTRAINT deployments_repository_tag_key,
            ADD CONSTRAINT deployments_tenant_run_key UNIQUE (tenant, run);
        CREATE INDEX deployments_newest ON deployments (tenant, repository, id);
    """)


def downgrade() -> None:
    """Back to one deployment for each tag; of several the first stays."""
    op.execute("""
        DELETE FROM deployments d USING deployments e
         WHERE d.repository = e.repository AND d.tag = e.tag AND d.id > e.id;
        DROP INDEX deployments_newest;
        ALTER TABLE deployments
            DROP CONSTRAINT deployments_tenant_run_key,
            ADD CONSTRAINT deployments_repository_tag_key UNIQUE (repository, tag),
            DROP COLUMN run, DROP COLUMN environment, DROP COLUMN tenant;
        DROP TABLE commits;
    """)
