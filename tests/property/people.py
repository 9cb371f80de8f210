"""An adversarial machine about people: whatever is clicked, typed, forged, repeated or too late, at one moment and from
several channels, over the real HTTP application and several connections to one database.

What it holds, whatever the order: nothing runs without those who may decide, nothing runs twice, no valid decision on
an open question is lost, every click after the decision is told the same, 409 or 410, and every copy shows how it
ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

import httpx2
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from starlette.applications import Starlette

from console import answer, api, approve
from tests.agents.curious.tools import Sign
from tests.asked import URL
from tests.callers import Callers
from tests.curious import ANN, BEN
from tests.hands import due
from tests.harness import Fleet
from twelvefold import AskHuman, Done, Task, Text
from twelvefold.tool import Tool
from workers.answers import Reply
from workers.answers import answer as answer_question
from workers.ids import uuid7
from workers.links import ANSWER_PATH, PATH, Link, Links, from_settings
from workers.operate import Refused
from workers.store import approvals, claims

EVE, ROOT = "eve@evil.example", "root"
ALLOWED = (ANN, BEN)
FORMER = ("approved", "approved_with_edits", "rejected", "answered")
FORGER = Links(URL, ["another secret of at least 32 characters"])
CHOICES = {"approval": ["approve", "reject", "edit"], "question": ["Refund", "Replace", "neither"]}
FLAWS = [*[""] * 5, *["digest"] * 3, "forged", "expired", "word", "call", "role", "tenant", "crossed", "old", "old"]


def script(task: Task) -> Tool[Any]:
    """The call that the opening message describes, once."""
    wanted = json.loads(task.event.text)
    call: Tool[Any] = AskHuman(**wanted["ask"]) if "ask" in wanted else Sign(**wanted["sign"])
    known = task.state.tally(call.__spec__.name)
    return Done(outcome=Text(text="over")) if known.count or known.failed or known.denied else call


@dataclass(frozen=True)
class Click:
    """One attempt: how, by whom, what, and what is wrong with it."""

    channel: str
    who: str
    choice: int
    flaw: str


clicks = st.builds(
    Click, st.sampled_from(["page", "page", "api", "api", "shell"]), st.sampled_from([ANN, ANN, BEN, EVE]),
    st.integers(0, 2), st.sampled_from(FLAWS),
)  # fmt: skip


@dataclass
class World:
    """What all cases share: the fleet, its callers and its application."""

    f: Fleet
    callers: Callers
    links: Links = field(init=False)
    app: Starlette = field(init=False)
    cases: int = 0
    seen: list[str] = field(default_factory=list)
    """Every violation, as it was found."""

    def __post_init__(self) -> None:
        links = from_settings(self.f.settings)
        assert links is not None
        run, self.links = self.f.run, links
        pages = [module.routes(run.db, links, lambda *_: None, run.log) for module in (approve, answer)]
        self.app = Starlette(routes=[*api.routes(self.callers.held), *pages[0], *pages[1]])


class People(RuleBasedStateMachine):
    """One task that waits for people, and people who click. `world` is set by whoever runs it."""

    world: ClassVar[World]

    @initialize(
        kind=st.sampled_from(["approval", "approval", "question"]),
        risk=st.sampled_from(["low", "low", "medium", "high"]), quorum=st.sampled_from([1, 1, 2]),
    )  # fmt: skip
    def asked(self, kind: str, risk: str, quorum: int) -> None:
        """An agent asks."""
        self.f, self.kind, self.item = self.world.f, kind, str(uuid4())
        self.world.cases += 1
        self.quorum, self.risk = (quorum, "high" if quorum > 1 else risk) if kind == "approval" else (1, "low")
        question = {"reason": "Which?", "format": "choice", "choices": ["Refund", "Replace"], "target": "refund-ops"}
        sign = {"item": self.item, "risk": self.risk, "quorum": self.quorum}
        self.sign, self.edited = sign | {"target": "refund-ops"}, f"{self.item} edited"
        text = json.dumps({"ask": question} if kind == "question" else {"sign": sign})
        self.task = self.f.open("curious", text)
        assert self.f.drain(self.task) == "waiting"
        self.granted: dict[int, set[tuple[str, str]]] = {}
        self.news = self.broken = False
        self.digests = {self.row()["asked"]: self.row()["digest"]}

    def row(self) -> dict[str, Any]:
        """The newest question."""
        found = self.f.run.db.rows(
            "SELECT *, deadline <= clock_timestamp() AS late FROM approvals WHERE task_id = %(id)s ORDER BY asked DESC",
            {"id": self.task},
        )
        return found[0]

    # what people and the world do

    @rule(wanted=st.lists(clicks, min_size=1, max_size=3), working=st.booleans())
    def click(self, wanted: list[Click], working: bool) -> None:
        """Some clicks at one moment, perhaps while a worker takes a step."""
        before = self.row()
        codes = asyncio.run(self.send(wanted, before, working))
        after = self.row()
        alone = len(wanted) == 1 and not working
        wrong = [self.judge(*each, before, after, alone=alone) for each in zip(wanted, codes, strict=True)]
        self.broken = any(wrong)
        self.world.seen += filter(None, wrong)
        assert not self.broken, wrong

    @rule()
    def work(self) -> None:
        """A worker does what there is."""
        self.f.drain(self.task)
        self.news = False
        self.digests.setdefault(self.row()["asked"], self.row()["digest"])

    @rule(who=st.sampled_from([*ALLOWED, EVE]), method=st.sampled_from(["GET", "HEAD"]))
    def look(self, who: str, method: str) -> None:
        """Whoever opens links changes nothing."""
        before = self.row()
        requests = [self.http(method, self.path(who, before, path)) for path in (PATH, ANSWER_PATH)]
        codes = [found.status_code for found in asyncio.run(_all(requests))]
        assert self.row() == before and 500 not in codes

    # which of these fit depends on who was quicker, so each looks for itself: a precondition must not race

    @rule()
    def grow_late(self) -> None:
        """The deadline passes; the sweep has not seen it yet."""
        if self.row()["state"] == "pending":
            self.change("deadline = clock_timestamp() - interval '1 s'")

    @rule()
    def sweep(self) -> None:
        """The sweep sees that a deadline passed."""
        if self.row()["late"] and self.f.row(self.task)["status"] == "waiting":
            due(self.f, self.task)
            self.work()

    @rule()
    def grow_stale(self) -> None:
        """Nothing began for as long as the approval was valid."""
        if self.row()["state"].startswith("approved") and self.row()["used_at"] is None:
            self.change("valid_until = clock_timestamp() - interval '1 s'")

    @rule()
    def die(self) -> None:
        """A worker claims the task and is killed before anything of its step is committed; the sweep frees it."""
        if self.f.row(self.task)["status"] != "ready":
            return
        held = claims.claim(self.f.run.db, self.task, uuid7(), self.f.run.registry.known, 60.0)
        assert held is not None
        assert self.f.step(self.task) == "nothing"
        claims.release(self.f.run.db, held, soon=True)

    @rule()
    def write(self) -> None:
        """Somebody writes to the task: whoever saw an older card has to look again."""
        if self.row()["state"] != "pending" or self.news:
            return
        self.f.intake.message(self.task, source="test", key=str(uuid4()), text="wait", sender="x", proof="test")
        self.news = True

    # how it is sent

    async def send(self, wanted: Sequence[Click], row: dict[str, Any], working: bool) -> list[int]:
        """Everything at one moment; the status of each."""
        doings: list[Awaitable[Any]] = [self.attempt(wish, row) for wish in wanted]
        if working:
            doings.append(asyncio.to_thread(self.f.step, self.task))
        return (await asyncio.gather(*doings))[: len(wanted)]

    def attempt(self, wish: Click, row: dict[str, Any]) -> Awaitable[int]:
        """One click on its way."""
        if wish.channel == "shell":
            return asyncio.to_thread(self.shell, wish, row)
        return self.page(wish, row) if wish.channel == "page" else self.api(wish, row)

    def choice(self, wish: Click) -> str:
        """What is chosen."""
        choices = CHOICES[self.kind]
        return choices[wish.choice % len(choices)]

    def shell(self, wish: Click, row: dict[str, Any]) -> int:
        """The command line, which does not edit here."""
        if self.choice(wish) == "edit":
            return 400
        try:
            if self.kind == "question":
                reply = Reply(self.task, self.choice(wish), ROOT, "override", call=row["call"], asked=row["asked"])
                answer_question(self.f.run.db, reply)
            else:
                approved = self.choice(wish) == "approve"
                self.f.operate.decide(
                    self.task, row["call"], approved=approved, by=ROOT, digest=row["digest"], proof="override"
                )
        except Refused as refused:
            return refused.code
        return 200

    def path(self, who: str, row: dict[str, Any], path: str = "", links: Links | None = None, **change: Any) -> str:
        """The path of somebody's link."""
        names = {"tenant": "t1", "task": self.task, "call": row["call"], "asked": row["asked"], "approver": who,
                 "expires": 2**31}  # fmt: skip
        link = Link.model_validate(names | change)
        own = ANSWER_PATH if self.kind == "question" else PATH
        return (links or self.world.links).address(link, path or own).removeprefix(URL)

    async def page(self, wish: Click, row: dict[str, Any]) -> int:
        """The page behind a link."""
        change: dict[str, Any] = {"expired": {"expires": 1}, "call": {"call": row["call"] + 1}}.get(wish.flaw, {})
        if wish.flaw == "old":
            change = {"asked": min(self.digests)}
        links = FORGER if wish.flaw == "forged" else self.world.links
        other = (PATH if self.kind == "question" else ANSWER_PATH) if wish.flaw == "crossed" else ""
        path = self.path(wish.who, row, other, links, **change)
        choice, link = self.choice(wish), links.read(path.rpartition("/")[2])
        with self.f.run.db.connection() as connection:
            found = approvals.newest_message(connection, _Named("t1", self.task))  # type: ignore[arg-type]
        form = {
            "decision": choice, "answer": choice, "digest": self.digest(wish, row), "seen": str(found[0]),
            "word": "WRONG" if wish.flaw == "word" else self.world.links.word(link),
        }  # fmt: skip
        return (await self.http("POST", path, data=form)).status_code

    async def api(self, wish: Click, row: dict[str, Any]) -> int:
        """The API."""
        choice, call = self.choice(wish), row["call"] + (wish.flaw == "call")
        said: dict[str, Any] = {"type": "response", "response": choice, "call_id": call}
        decided: dict[str, Any] = {"type": "approval", "approved": choice != "reject", "call_id": call,
                                   "digest": self.digest(wish, row)}  # fmt: skip
        if choice == "edit":
            decided["edited_args"] = self.sign | {"item": self.edited}
        body = said if (self.kind == "question") != (wish.flaw == "crossed") else decided
        roles: Any = ["viewer"] if wish.flaw == "role" else ["requester", "approver"]
        tenant = "t2" if wish.flaw == "tenant" else "t1"
        headers = self.world.callers.bearer(*roles, by=wish.who, tenant=tenant)
        if wish.flaw in ("forged", "expired"):
            headers = {"Authorization": "Bearer tf_" + "x" * 43}
        return (await self.http("POST", f"/thread/{self.task}/response", json=body, headers=headers)).status_code

    def digest(self, wish: Click, row: dict[str, Any]) -> str:
        """The digest as the card showed it, or another."""
        if wish.flaw == "digest":
            return "0" * 64
        return str(self.digests.get(min(self.digests)) if wish.flaw == "old" else row["digest"])

    async def http(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """One request to the application."""
        transport = httpx2.ASGITransport(app=self.world.app)
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
            return await client.request(method, path, **more)

    def change(self, what: str) -> None:
        """Change the newest question, as time does."""
        with self.f.run.db.connection() as connection:
            connection.execute(
                f"UPDATE approvals SET {what} WHERE task_id = %s AND asked = %s", (self.task, self.row()["asked"])
            )

    # what must hold

    def valid(self, wish: Click, row: dict[str, Any]) -> bool:
        """Whether this click may decide the question as it stood, whatever the moment."""
        if self.choice(wish) == "neither" or (self.choice(wish) == "edit" and wish.channel != "api"):
            return False
        if wish.channel == "shell":
            return True
        harmless = {"page": ["role", "tenant"], "api": ["word"]}[wish.channel]
        if self.kind == "question":
            harmless = [*harmless, "digest", *(["word"] if wish.channel == "page" else ["old"])]
        elif self.risk == "low" and wish.channel == "page":
            harmless.append("word")
        flawed = wish.flaw not in ("", *harmless)
        if wish.flaw == "old" and len(self.digests) == 1:
            flawed = False
        beyond = wish.channel == "page" and self.risk == "high" and self.quorum == 1
        return wish.who in ALLOWED and not flawed and not beyond

    def judge(
        self, wish: Click, code: int, before: dict[str, Any], after: dict[str, Any], *, alone: bool
    ) -> str | None:
        """What is wrong with what a click was answered."""
        who = ROOT if wish.channel == "shell" else wish.who
        choice, told, valid = self.choice(wish), f"{wish} got {code}", self.valid(wish, before)
        if code < 300 and valid:
            self.granted.setdefault(before["asked"], set()).add((choice, who))
            return None
        if code < 300:
            # who may decide, but not in this way, is told of an equal decision or vote that stands
            weak = wish.channel == "page" and wish.flaw in ("", "word", "role", "tenant")
            known = (choice, who) in self.granted.get(before["asked"], ()) or self.same(choice, after)
            return None if weak and wish.who in ALLOWED and known else f"unauthorised: {told}"
        if code >= 500 or (valid and code not in (403, 404, 409, 410)):
            return f"no answer of ours: {told}"
        wrong_words = wish.channel == "page" and self.risk != "low" and before["wrong_words"].get(wish.who, 0) >= 5
        unread = wish.channel == "page" and self.kind == "approval" and self.news
        is_open = before["state"] == "pending" and not before["late"]
        if alone and valid and is_open and not wrong_words and not unread:
            return f"lost: {told}"
        over = valid and before["state"] in FORMER and not self.same(choice, before)
        return f"not told of the decision that stands: {told}" if over and code not in (409, 410) else None

    def same(self, choice: str, row: dict[str, Any]) -> bool:
        """Whether this is the decision that stands on the row."""
        if self.kind == "question":
            return bool(choice == row["answer"])
        if choice == "edit":
            return row["edited"] is not None and row["state"] in ("approved_with_edits", "superseded")
        return bool({"approve": "approved", "reject": "rejected"}[choice] == row["state"])

    def teardown(self) -> None:
        """Everything comes to rest; then count what was done, and look at every copy."""
        if not hasattr(self, "task") or self.broken:
            return
        try:
            self.at_rest()
        except AssertionError as error:
            self.world.seen.append(str(error))
            raise

    def at_rest(self) -> None:
        """What was done and what every copy shows, against what was granted."""
        self.f.drain(self.task)
        rows = self.f.run.db.rows("SELECT * FROM approvals WHERE task_id = %(id)s", {"id": self.task})
        done = [row["text"] for row in self.f.run.db.rows(
            "SELECT text FROM notes WHERE text IN (%(a)s, %(b)s)", {"a": self.item, "b": self.edited}
        )]  # fmt: skip
        used = [row for row in rows if row["used_at"] is not None]
        assert len(done) == len(used) <= 1, f"{done} executions for {len(used)} used approvals"
        edited = used and any(row["edited"] and row["asked"] <= used[0]["asked"] for row in rows)
        assert done in ([], [self.edited if edited else self.item]), f"executed what was not decided: {done}"
        for row in rows:
            self.settled(row)
        self.shown(rows)

    def settled(self, row: dict[str, Any]) -> None:
        """The row against what was granted."""
        granted = self.granted.get(row["asked"], set())
        chosen = {choice for choice, _ in granted}
        match row["state"]:
            case "approved":
                # an edit that changes nothing any more is an approval
                approvers = {who for choice, who in granted if choice in ("approve", "edit")}
                assert len(approvers) >= self.quorum, f"unauthorised: approved by {approvers} alone"
                assert "reject" not in chosen, "two decisions"
            case "approved_with_edits":
                assert chosen == {"edit"}, "two decisions"
            case "superseded" if row["edited"]:
                assert "edit" in chosen and "reject" not in chosen, "two decisions"
            case "stale":
                assert "reject" not in chosen, "two decisions"
            case "rejected":
                assert "reject" in chosen and "edit" not in chosen, "two decisions"
                assert self.quorum > 1 or chosen == {"reject"}, "two decisions"
            case "answered":
                assert chosen == {row["answer"]}, "two answers"
            case _:
                assert self.quorum > 1 or not granted, "a decision was lost"
        if row["used_at"] is not None:
            assert row["state"] in ("approved", "approved_with_edits") and self.kind == "approval"
        moved = [event for event in self.f.events(self.task) if getattr(event, "to", None) == row["state"]]
        assert row["state"] not in FORMER or len(moved) >= 1, "the task was not told"

    def shown(self, rows: Sequence[dict[str, Any]]) -> None:
        """Each copy of each question, against how it ended."""
        for row in rows:
            pages = asyncio.run(_all([self.http("GET", self.path(who, row)) for who in ALLOWED]))
            for page in pages:
                ended = "edited by" if row["edited"] else f"{row['state'].replace('_', ' ')} by"
                expected = [ended, f"{row['state'].replace('_', ' ')} by", "no longer open"]
                # what was approved as edited and not begun in time is stale like any other
                decided = row["state"] in FORMER or (row["edited"] and row["state"] != "stale")
                expected = expected[:2] if decided else expected[-1:]
                told = any(words in page.text for words in expected)
                assert row["state"] == "pending" or told, f"{row['state']} is not shown"


@dataclass(frozen=True)
class _Named:
    tenant: str
    task: str


async def _all(requests: Sequence[Awaitable[httpx2.Response]]) -> list[httpx2.Response]:
    return list(await asyncio.gather(*requests))
