"""Every query says whose rows it touches: by tenant, or by an id that is unique in the world. The others say why not.

The queries are found in the code, not listed: a new one that names neither fails here until it does, or until it stands
in `ALL_TENANTS` with its reason. `tests/property/test_tenants.py` plays two tenants against each other.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from .tree import modules, source

WITHOUT_TENANT = {
    "workers_alive": "processes serve every tenant",
    "paces": "destinations outside, which all tenants share",
    "texts": "prompt files and menus, which are code",
    "endpoints": "what a probe found out about a server",
    "model_limits": "an account of a model serves every tenant",
    "sweeps": "leases of the sweeper, which serves every tenant",
    "deployments": "rows of an agent, which are its author's to divide",
    "commits": "rows of an agent, which are its author's to divide",
}
"""Tables that belong to no tenant, and why."""

UNIQUE = {
    "schedules": ("tenant",), "slots": ("tenant",),
    "agent_tasks": ("tenant", "id"), "agent_events": ("task_id",), "arrivals": ("tenant", "task_id"),
    "outbox": ("tenant", "id", "task_id"), "approvals": ("tenant", "task_id"), "votes": ("tenant", "task_id"),
    "switches": ("tenant",), "tokens": ("tenant",), "grants": ("tenant",),
    "facts": ("task_id",), "memories": ("tenant",),
    "unsubscribed": ("tenant",),
    "mailboxes": ("tenant",), "undeliverable": ("tenant",),
    "renderings": ("task_id",),
    "spend": ("tenant",), "spend_days": ("tenant",), "spend_notices": ("tenant",), "allowances": ("tenant",),
}  # fmt: skip
"""By which columns a row is known to be one tenant's: its tenant, or a UUID that no two tenants share."""

SWEEP = "the sweep serves every tenant, and changes by id what it found"
DEAD = "a dead or leaving process gives back what it held, whosever it is"
ALL_TENANTS = {
    ("workers/store/alive.py", "BURY", "FROM agent_tasks t"): DEAD,
    ("workers/store/alive.py", "FREE_DEAD", "FROM agent_tasks x"): DEAD,
    ("workers/store/alive.py", "leave", "UPDATE agent_tasks"): DEAD,
    ("workers/store/commits.py", "ARRIVALS", "UPDATE arrivals r"): "ids that `PENDING` read from this task's inbox",
    ("workers/store/database.py", "Database.answers", "FROM agent_tasks"): "whether the table is there; reads no value",
    ("workers/store/spend.py", "ROLL_UP", "FROM spend"): SWEEP,
    ("workers/store/rings.py", "LIMITED", "FROM agent_tasks m"): SWEEP,
    ("workers/store/rings.py", "LIMITED", "FROM slots s"): SWEEP,
    ("workers/store/schedules.py", "DUE", "FROM schedules s"): SWEEP,
    ("workers/store/sweeps.py", "DUE", "FROM agent_tasks"): SWEEP,
    ("workers/store/sweeps.py", "DUE", "FROM agent_tasks x"): SWEEP,
    ("workers/store/sweeps.py", "LATE", "FROM arrivals r"): SWEEP,
    ("workers/store/sweeps.py", "LATE", "UPDATE arrivals r"): SWEEP,
    ("workers/store/sweeps.py", "LETTERS", "FROM outbox o"): SWEEP,
    ("workers/store/sweeps.py", "LOST_LETTERS", "UPDATE outbox"): SWEEP,
    ("workers/store/sweeps.py", "RING", "FROM agent_tasks"): SWEEP,
    ("workers/store/sweeps.py", "RING", "FROM agent_tasks n"): SWEEP,
    ("workers/store/sweeps.py", "SUSPECT", "FROM agent_tasks t"): SWEEP,
    ("workers/store/sweeps.py", "SUSPECT", "FROM agent_tasks u"): SWEEP,
    ("workers/store/sweeps.py", "UNCLAIMED", "FROM arrivals"): SWEEP,
    ("workers/store/sweeps.py", "UNCLAIMED", "UPDATE arrivals"): SWEEP,
    (
        "workers/store/tokens.py",
        "FIND",
        "FROM tokens",
    ): "a token says whose it is; it is found by the hash of its secret",
}
"""Queries that touch every tenant's rows, and why."""


class Query(NamedTuple):
    """One mention of one table: where it stands, and the part of the statement that has to say whose rows."""

    module: str
    place: str
    table: str
    verb: str
    alias: str
    scope: str

    @property
    def name(self) -> tuple[str, str, str]:
        """As it stands in `ALL_TENANTS`."""
        return self.module, self.place, f"{self.verb} {self.table} {self.alias}".strip()


def tables() -> set[str]:
    """Every table that a migration makes."""
    text = "".join(source(module) for module in modules("migrations"))
    return set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(", text))


def strings(tree: ast.AST, place: str = "") -> Iterator[tuple[str, str]]:
    """Every string with the constant or the function that it stands in; `{}` where an f-string has a value."""
    for node in ast.iter_child_nodes(tree):
        here = place
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                here = f"{place}.{name}" if place else name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if not place:
                here = name
        match node:
            case ast.Constant(value=str(text)):
                yield here, text
            case ast.JoinedStr(values=values):
                yield here, "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in values)
            case ast.BinOp(op=ast.Add()):
                yield here, "".join(text for _, text in strings(node, here))
            case _:
                yield from strings(node, here)


def without_inner(scope: str) -> str:
    """The statement without the statements inside it: whose rows those touch they say for themselves."""
    while True:
        begin = re.search(r"\(\s*(?:SELECT|UPDATE|INSERT|DELETE)\b", scope)
        if begin is None:
            return scope
        inner = enclosing(scope, begin.end())
        scope = scope[: begin.start()] + "()" + scope[begin.start() + len(inner) + 2 :]


def enclosing(text: str, position: int) -> str:
    """The innermost parentheses around a position, or all of the text."""
    depth, begin = 0, 0
    for index in range(position - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[index], 0)
        if depth < 0:
            begin = index + 1
            break
    depth = 0
    for index in range(position, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth < 0:
            return text[begin:index]
    return text[begin:]


def queries(module: str, text: str) -> Iterator[Query]:
    """Every mention of a table in the SQL of one module."""
    known = "|".join(sorted(tables()))
    mention = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?({known})\b(?:\s+(?:AS\s+)?([a-z]\w*)\b)?")
    for place, sql in strings(ast.parse(text)):
        for found in mention.finditer(sql):
            verb, table, alias = found.groups()
            yield Query(module, place, table, verb, alias or "", without_inner(enclosing(sql, found.start())))


def says_whose(query: Query) -> bool:
    """Whether the statement names a tenant or a unique id of this table's rows."""
    names = "|".join(UNIQUE[query.table])
    if query.verb == "INTO":
        return re.search(rf"INTO {query.table}\s*\([^)]*\b({names})\b", query.scope) is not None
    own = rf"(?:{query.alias}|{query.table})\." if query.alias else rf"(?:{query.table}\.)?"
    before = r"(?<![\w.])" if not query.alias else r"\b"
    compared = rf"{before}{own}({names})(?:::\w+)?\s*(?:=|IN\b)|(?:=|IN \('\*',)\s*{own}({names})\b"
    return re.search(compared, query.scope) is not None


def all_queries() -> list[Query]:
    return [query for module in modules() for query in queries(module, source(module))]


def test_every_table_is_a_tenants_or_says_why_it_is_not():
    assert UNIQUE.keys() <= tables(), "the tables are not found any more"
    assert not tables() - UNIQUE.keys() - WITHOUT_TENANT.keys(), "Say by what its rows are one tenant's, or why not."


def test_every_query_says_whose_rows_it_touches_or_why_it_touches_everybodys():
    found = [query for query in all_queries() if query.table in UNIQUE]
    assert len(found) > 80, "the queries are not found any more"
    loose = {query.name: query.scope for query in found if not says_whose(query)}
    new = {key: scope for key, scope in loose.items() if key not in ALL_TENANTS}
    assert not new, f"Add a condition on {UNIQUE}, or the reason to ALL_TENANTS: {new}"
    assert ALL_TENANTS.keys() == loose.keys(), f"These need no exception any more: {ALL_TENANTS.keys() - loose.keys()}"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT state FROM outbox WHERE conversation = %s",
        "SELECT o.state FROM outbox o WHERE o.key = %(key)s AND EXISTS (SELECT FROM agent_tasks t WHERE t.id = %(id)s)",
        "UPDATE arrivals SET state = 'ignored' WHERE source = %s AND key = %s",
        "DELETE FROM approvals WHERE state = 'expired'",
        "INSERT INTO arrivals (source, key) VALUES (%s, %s)",
        "SELECT FROM agent_tasks WHERE wait_key = (SELECT key FROM arrivals WHERE tenant = %s LIMIT 1)",
        "SELECT p.n FROM outbox o JOIN outbox p ON p.conversation = o.conversation WHERE o.id = %s",
        "SELECT FROM agent_tasks WHERE worker_id = %s AND parent_id = %s",
    ],
)
def test_a_query_that_does_not_say_whose_rows_it_touches_is_seen(sql):
    text = f"def f():\n    return {sql!r}"
    assert [query.place for query in queries("workers/new.py", text) if not says_whose(query)] == ["f"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT state FROM outbox WHERE tenant = %s AND conversation = %s",
        "SELECT FROM agent_events WHERE seq = 1 AND task_id = %(id)s",
        "SELECT a.state FROM approvals a JOIN agent_tasks t ON t.id = a.task_id WHERE a.tenant = 'x'",
        "INSERT INTO arrivals (source, tenant, key) VALUES (%s, %s, %s)",
        "SELECT FROM workers_alive WHERE pid = 1",
    ],
)
def test_a_query_that_says_it_is_left_alone(sql):
    text = f"SQL = {sql!r}"
    assert all(query.table in WITHOUT_TENANT or says_whose(query) for query in queries("workers/new.py", text))
