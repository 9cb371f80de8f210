"""The fleet's own tables: tasks, their log, what arrives, what goes out, approvals, switches, workers, leases.

Expand only. Steps never write an indexed column, so that updates stay heap-only (HOT); the partial indexes below are
the queries of the sweeper and nothing else.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

ROLES = """
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['twelvefold_app', 'twelvefold_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
    END LOOP;
END $$;
"""

TABLES = """
CREATE TABLE agent_tasks (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    agent text NOT NULL,
    agent_version text NOT NULL,
    code_floor int NOT NULL DEFAULT 1,
    status text NOT NULL DEFAULT 'ready'
        CHECK (status IN ('ready', 'waiting', 'done', 'failed', 'cancelled', 'quarantined')),
    waiting_for text
        CHECK (waiting_for IN ('approval', 'event', 'timer', 'child', 'retry', 'settle', 'budget', 'operator')),
    lane text NOT NULL DEFAULT 'steps',
    current_step int NOT NULL DEFAULT 0,
    seq int NOT NULL DEFAULT 0,
    state jsonb NOT NULL,
    state_version int NOT NULL,
    business_entity_id text,
    parent_id uuid,
    priority int NOT NULL DEFAULT 0,
    due_at timestamptz,
    wait_key text,
    worker_id uuid,
    claimed_until timestamptz,
    fence bigint NOT NULL DEFAULT 0,
    attempts int NOT NULL DEFAULT 0,
    nudged_at timestamptz,
    inbox_pending int NOT NULL DEFAULT 0 CHECK (inbox_pending >= 0),
    paused_at timestamptz,
    cancel_asked timestamptz,
    outbox_n int NOT NULL DEFAULT 0,
    decisions int NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    usd numeric NOT NULL DEFAULT 0,
    active_ms bigint NOT NULL DEFAULT 0,
    outcome json,
    reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
) WITH (fillfactor = 60);
CREATE INDEX agent_tasks_ready ON agent_tasks (id) WHERE status = 'ready';
CREATE INDEX agent_tasks_due ON agent_tasks (due_at) WHERE status = 'waiting' AND due_at IS NOT NULL;
CREATE INDEX agent_tasks_wait ON agent_tasks (tenant, wait_key) WHERE wait_key IS NOT NULL;
CREATE INDEX agent_tasks_list ON agent_tasks (tenant, id);

CREATE TABLE agent_events (
    task_id uuid NOT NULL REFERENCES agent_tasks (id),
    seq int NOT NULL,
    type text NOT NULL,
    version int NOT NULL,
    at timestamptz NOT NULL,
    data json NOT NULL,
    salt text,
    hash text NOT NULL,
    actor text,
    caused_by int,
    writer text NOT NULL,
    tokens int,
    usd numeric,
    duration int,
    traceparent text,
    PRIMARY KEY (task_id, seq)
);

CREATE TABLE arrivals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    source text NOT NULL,
    key text NOT NULL,
    type text NOT NULL DEFAULT '',
    kind text NOT NULL,
    task_id uuid,
    state text NOT NULL CHECK (state IN ('accepted', 'ignored', 'failed', 'unclaimed')),
    reason text,
    payload json,
    raw bytea,
    headers json,
    sender text,
    conversation text,
    proof text,
    wait_key text,
    cleaned int NOT NULL DEFAULT 0,
    absorbed_seq int,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, source, key)
);
CREATE INDEX arrivals_inbox ON arrivals (task_id, id) WHERE absorbed_seq IS NULL AND state = 'accepted';
CREATE INDEX arrivals_unclaimed ON arrivals (tenant, wait_key, id) WHERE state = 'unclaimed';

CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    task_id uuid NOT NULL,
    seq int NOT NULL,
    channel text NOT NULL,
    recipient text NOT NULL,
    conversation text NOT NULL,
    n int NOT NULL,
    key text NOT NULL,
    payload json NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'unknown')),
    attempts int NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    nudged_at timestamptz,
    claim uuid,
    claimed_until timestamptz,
    receipt text,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    UNIQUE (tenant, key)
);
CREATE INDEX outbox_pending ON outbox (due_at) WHERE state = 'pending';
CREATE INDEX outbox_sending ON outbox (claimed_until) WHERE state = 'sending';
CREATE INDEX outbox_order ON outbox (conversation, n) WHERE state IN ('pending', 'sending');

CREATE TABLE approvals (
    tenant text NOT NULL,
    task_id uuid NOT NULL REFERENCES agent_tasks (id),
    call int NOT NULL,
    asked int NOT NULL,
    digest text NOT NULL,
    verdict json NOT NULL,
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'superseded', 'stale')),
    target text NOT NULL DEFAULT '',
    risk text NOT NULL DEFAULT 'medium',
    deadline timestamptz NOT NULL,
    valid_until timestamptz,
    used_at timestamptz,
    decided_by text,
    decided_at timestamptz,
    comment text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, task_id, call, asked)
);
CREATE UNIQUE INDEX approvals_one_open ON approvals (tenant, task_id) WHERE state = 'pending';

CREATE TABLE workers_alive (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid int NOT NULL,
    slots jsonb NOT NULL,
    agents jsonb NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE TABLE switches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('pause', 'freeze')),
    scope text NOT NULL,
    until timestamptz,
    by text NOT NULL,
    reason text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE sweeps (
    name text PRIMARY KEY,
    holder uuid NOT NULL,
    until timestamptz NOT NULL
);

CREATE VIEW agent_threads AS
SELECT t.id, t.status, t.current_step,
       (SELECT coalesce(json_agg(json_build_object('seq', e.seq, 'type', e.type, 'at', e.at, 'data', e.data)
                                 ORDER BY e.seq), '[]'::json)
          FROM agent_events e WHERE e.task_id = t.id) AS events_json,
       t.business_entity_id
  FROM agent_tasks t;
"""

GRANTS = """
GRANT USAGE ON SCHEMA public TO twelvefold_app, twelvefold_reader;
GRANT SELECT, INSERT, UPDATE ON agent_tasks, arrivals, outbox, approvals, workers_alive, switches, sweeps
    TO twelvefold_app;
GRANT DELETE ON workers_alive, switches, sweeps TO twelvefold_app;
GRANT SELECT, INSERT ON agent_events TO twelvefold_app;
GRANT SELECT ON agent_threads TO twelvefold_app;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO twelvefold_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO twelvefold_app;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO twelvefold_app;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO twelvefold_reader;
"""

DOWN = """
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM twelvefold_app, twelvefold_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON SEQUENCES FROM twelvefold_app;
DROP VIEW agent_threads;
DROP TABLE sweeps, switches, workers_alive, approvals, outbox, arrivals, agent_events, agent_tasks;
"""


def upgrade() -> None:
    """Create everything from zero."""
    op.execute(ROLES)
    op.execute(TABLES)
    op.execute(GRANTS)


def downgrade() -> None:
    """Back to an empty schema; the roles stay, other databases of the cluster may use them."""
    op.execute(DOWN)
