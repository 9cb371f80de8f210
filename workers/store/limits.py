"""The limits that all clients of one model account share: a leaky bucket a dimension, and a door that closes.

One row an account, one statement a call. `debts` are what was let through and has not run off yet, in the order
requests a second, requests a minute, tokens a second, tokens a minute. A bucket holds a tenth of its limit and runs off
at nine tenths of it, so that no window of that length sees more than the limit; a single call that is larger than the
bucket goes when the bucket is empty. The door (`closed_until`) is shut while the endpoint fails for everybody; when its
time is over, one call is let through to look.
"""

from __future__ import annotations

from collections.abc import Sequence

from .database import Database

PROBE_S = 10.0
"""So long others wait for the one that looks whether the endpoint is back."""

TAKE = """
INSERT INTO model_limits AS l (account, at, debts, wait)
SELECT %(account)s, clock_timestamp(), %(needs)s::float8[], 0
  FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick
ON CONFLICT (account) DO UPDATE SET (at, debts, wait, closed_until) = (
    SELECT n.now,
           CASE WHEN n.shut > 0 OR max(x.late) > %(short)s THEN array_agg(x.left ORDER BY x.i)
                ELSE array_agg(x.left + x.need ORDER BY x.i) END,
           greatest(n.shut, max(x.late)),
           CASE WHEN l.closed_until <= n.now THEN n.now + make_interval(secs => %(probe)s) ELSE l.closed_until END
      FROM (SELECT c.now, coalesce(extract(epoch FROM l.closed_until - c.now), 0)::float8 AS shut
              FROM (SELECT clock_timestamp() AS now) c) n,
           LATERAL (
               SELECT b.i, b.need, b.left, greatest(0, (b.left + least(b.need, b.hold) - b.hold) / b.rate) AS late
                 FROM (SELECT u.i, u.need, u.hold, u.rate,
                              greatest(0, u.debt - u.rate * extract(epoch FROM n.now - l.at)::float8) AS left
                         FROM unnest(l.debts, %(needs)s::float8[], %(holds)s::float8[], %(rates)s::float8[])
                              WITH ORDINALITY AS u (debt, need, hold, rate, i)) b) x
     GROUP BY n.now, n.shut)
RETURNING wait
"""


def take(
    db: Database, account: str, needs: Sequence[float], holds: Sequence[float], rates: Sequence[float], short: float
) -> float:
    """Seconds until a call with these needs may begin: at most `short`, and it is counted; more, and it is not."""
    names = {
        "account": account, "needs": list(needs), "holds": list(holds), "rates": list(rates), "short": short,
        "probe": PROBE_S,
    }  # fmt: skip
    with db.connection() as connection:
        row = connection.execute(TAKE, names).fetchone()
    assert row is not None
    return max(0.0, float(row[0]))


def correct(db: Database, account: str, tokens: int) -> None:
    """Count so many tokens more, or fewer, than were taken, as the reply said how many they were."""
    with db.connection() as connection:
        connection.execute(
            "UPDATE model_limits SET debts[3] = greatest(0, debts[3] + %(tokens)s),"
            " debts[4] = greatest(0, debts[4] + %(tokens)s) WHERE account = %(account)s",
            {"account": account, "tokens": tokens},
        )


def failed(db: Database, account: str, patience: int, wait: float) -> int:
    """The endpoint failed: the failures in a row, of the whole fleet. From `patience` on the door closes for `wait`
    seconds.
    """
    with db.connection() as connection:
        row = connection.execute(
            "INSERT INTO model_limits AS l (account, failures, closed_until) VALUES (%(account)s, 1, CASE WHEN"
            " %(patience)s <= 1 THEN clock_timestamp() + make_interval(secs => %(wait)s) END)"
            " ON CONFLICT (account) DO UPDATE SET failures = l.failures + 1, closed_until = CASE WHEN"
            " l.failures + 1 >= %(patience)s THEN greatest(l.closed_until, clock_timestamp() +"
            " make_interval(secs => %(wait)s)) ELSE l.closed_until END RETURNING failures",
            {"account": account, "patience": patience, "wait": wait},
        ).fetchone()
    assert row is not None
    return int(row[0])


def works(db: Database, account: str) -> None:
    """The endpoint answered: the door is open."""
    with db.connection() as connection:
        connection.execute(
            "UPDATE model_limits SET failures = 0, closed_until = NULL WHERE account = %s AND failures > 0", (account,)
        )
