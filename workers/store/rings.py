"""Ringing where limits hold: of what a limit would turn away nobody is told, so that the lane is free for the others.

The same order as without limits: fairly by tenant, then priority, then age. What is counted here may be a moment old;
the claim decides.
"""

from __future__ import annotations

from .claims import PAUSED
from .database import Database
from .sweeps import SUSPECT, shown

LIMITED = f"""
WITH rules AS (
    SELECT f.key AS agent, (f.value ->> 'agent')::int AS most, (f.value ->> 'key')::int AS per_key,
           (f.value ->> 'rate')::int AS begins
      FROM jsonb_each(%(rules)s::jsonb) AS f),
moving AS MATERIALIZED (
    SELECT m.tenant, m.agent, m.flow_key, m.lane, count(*) AS n FROM agent_tasks m
     WHERE m.status = 'ready'
       AND (m.worker_id IS NOT NULL OR m.nudged_at >= clock_timestamp() - make_interval(secs => %(renudge)s))
     GROUP BY m.tenant, m.agent, m.flow_key, m.lane),
spent AS MATERIALIZED (
    SELECT s.tenant, r.agent FROM slots s JOIN rules r ON s.scope = 'rate ' || r.agent
     WHERE s.until > clock_timestamp() GROUP BY s.tenant, r.agent, r.begins HAVING count(*) >= r.begins),
keyed AS (
    SELECT t.id, t.tenant, t.agent, t.priority, t.flow_key, r.most, r.per_key, t.cancel_asked IS NOT NULL AS ends,
           row_number() OVER (PARTITION BY t.tenant, t.agent, t.flow_key ORDER BY t.priority DESC, t.id)
           + coalesce((SELECT sum(m.n) FROM moving m WHERE m.tenant = t.tenant AND m.agent = t.agent
                          AND m.flow_key = t.flow_key), 0) AS of_key
      FROM agent_tasks t LEFT JOIN rules r ON r.agent = t.agent
     WHERE t.status = 'ready' AND t.worker_id IS NULL AND t.lane = %(lane)s
       AND (t.nudged_at IS NULL OR t.nudged_at < clock_timestamp() - make_interval(secs => %(renudge)s))
       AND (t.attempts < 2 OR t.id = ({SUSPECT}))
       AND (t.cancel_asked IS NOT NULL OR (t.paused_at IS NULL AND NOT {PAUSED}
            AND NOT (t.seq = 0 AND t.parent_id IS NULL AND (t.tenant, t.agent) IN (SELECT tenant, agent FROM spent))))),
ranked AS (
    SELECT k.*, row_number() OVER (PARTITION BY k.tenant, k.agent ORDER BY k.priority DESC, k.id)
           + coalesce((SELECT sum(m.n) FROM moving m WHERE m.tenant = k.tenant AND m.agent = k.agent), 0) AS of_agent
      FROM keyed k WHERE k.ends OR k.flow_key IS NULL OR k.per_key IS NULL OR k.of_key <= k.per_key),
open AS (
    SELECT a.id, a.priority, a.ends,
           row_number() OVER (PARTITION BY a.tenant ORDER BY a.priority DESC, a.id) + coalesce((SELECT sum(m.n)
             FROM moving m WHERE m.tenant = a.tenant AND m.lane = %(lane)s), 0) AS place,
           coalesce((SELECT sum(m.n) FROM moving m WHERE m.tenant = a.tenant AND m.lane <> %(lane)s), 0) AS elsewhere
      FROM ranked a WHERE a.ends OR a.most IS NULL OR a.of_agent <= a.most),
chosen AS (
    SELECT t.id FROM agent_tasks t
     WHERE t.id IN (SELECT o.id FROM open o
                     WHERE o.ends OR %(tenant)s::int IS NULL OR o.place + o.elsewhere <= %(tenant)s::int
                     ORDER BY o.place, o.priority DESC, random() LIMIT %(room)s)
     ORDER BY t.id FOR UPDATE SKIP LOCKED)
UPDATE agent_tasks t SET nudged_at = clock_timestamp() FROM chosen
 WHERE t.id = chosen.id
RETURNING t.id::text, t.agent, t.current_step, coalesce(t.state -> 'call' ->> 'tool', 'model')
"""


def ring(
    db: Database, lane: str, room: int, renudge: float, rules: str, tenant: int | None
) -> list[tuple[str, str]]:  # fmt: skip
    """Ready tasks nobody was told of and that their limits let go on: (id, what to show) pairs. `rules` are the limits
    by agent as JSON, `tenant` that of each tenant.
    """
    if room <= 0:
        return []
    names = {"lane": lane, "room": room, "renudge": renudge, "rules": rules, "tenant": tenant}
    with db.connection() as connection:
        return [(row[0], shown(*row)) for row in connection.execute(LIMITED, names).fetchall()]
