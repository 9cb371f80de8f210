"""Whatever is sent to the API: an answer that fits, never a fault of ours, and never a decision nobody made."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agents.signoff.tools import Ship
from tests.callers import callers
from tests.hands import once
from tests.harness import fleet

TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "message", "event", "agent", "delivery", "business_ref", "budget", "type", "response", "approved", "comment",
    "call_id", "digest", "seen", "edited_args", "reason", "decisions", "usd", "active", "deadline",
)  # fmt: skip
LIKELY = st.sampled_from(["notes", "refunds", "signoff", "response", "approval", "log", True, 1, "hi", {"text": "x"}])
MEMBERS = st.dictionaries(st.sampled_from(NAMES) | TEXT, LIKELY | VALUE, max_size=5)
BODIES = st.binary(max_size=40) | (MEMBERS | VALUE).map(lambda value: json.dumps(value).encode())
VERBS = st.sampled_from(["response", "cancel", "pause", "resume", "retry"])
QUERIES = st.dictionaries(
    st.sampled_from(["status", "waiting_for", "agent", "business_ref", "before", "limit", "after"]) | TEXT,
    st.sampled_from(["1", "done", "notes"]) | TEXT,
    max_size=3,
)


def test_no_body_and_no_query_is_a_fault_of_ours(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Ship(item="pears"))) as f, callers(f) as api:
        task = f.open("signoff")
        assert f.drain(task) == "waiting"
        paths = st.sampled_from(["/thread", f"/thread/{task}/response", "/thread/no-id/response"])
        verbs = VERBS.map(lambda verb: f"/thread/{f.open('notes')}/{verb}")
        seen: set[int] = set()

        @settings(max_examples=100, suppress_health_check=list(HealthCheck))
        @given(path=paths | verbs, body=BODIES, query=QUERIES)
        def send(path: str, body: bytes, query: dict[str, str]) -> None:
            answer = api.post(path, body, "admin")
            assert answer.status_code in (202, 400, 404, 409, 410), answer.text
            seen.add(answer.status_code)
            params = {name.encode("utf-8", "replace"): text.encode("utf-8", "replace") for name, text in query.items()}
            for looked in ("/thread", f"/thread/{task}/events", f"/thread/{task}"):
                found = api.client.get(looked, params=params, headers=api.bearer("admin"))  # type: ignore[arg-type]
                assert found.status_code in (200, 400), found.text
                seen.add(found.status_code)

        send()
        assert {200, 202, 400, 404} <= seen, "the examples reach what they are meant for"
        assert f.one("SELECT state FROM approvals") == "pending", "nobody named the call and its digest"
