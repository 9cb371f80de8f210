"""People who click: on the page, through the API and on the command line, each attempt perhaps wrong in one way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
from hypothesis import strategies as st
from starlette.applications import Starlette

from console import answer, api, approve
from tests.asked import URL, Mailbox
from tests.callers import Callers
from tests.curious import ANN, BEN
from tests.harness import Fleet
from tests.property.papers import OUTSIDE, Died
from twelvefold import Message
from workers.answers import Reply
from workers.answers import answer as answer_question
from workers.decisions import Terms
from workers.ids import uuid7
from workers.links import ANSWER_PATH, PATH, Link, Links, from_settings
from workers.operate import Refused
from workers.relay import deliver
from workers.store import approvals
from workers.store.inbox import Entry

EVE, ROOT, LAST = "eve@evil.example", "root", "no@example.org"
"""Nobody's friend, the shell, and who may decide too once the others have not."""
ALLOWED = (ANN, BEN)
WHY = "why?"
FORGER = Links(URL, ["another secret of at least 32 characters"])
ANSWERS = {"approve": "Refund", "reject": "Replace", "edit": "neither", "ask": "Refund", "grant": "Replace"}
STRONG = ["digest", "forged", "expired", "word", "call", "role", "tenant", "crossed", "old"]
FLAWS = [*[""] * 6, *STRONG, "digest", "old"]


@dataclass(frozen=True)
class Click:
    """One attempt: how, by whom, what, and what is wrong with it."""

    channel: str
    who: str
    choice: str
    flaw: str


def clicks(who: Sequence[str] = (ANN, ANN, BEN, EVE, LAST), flaws: Sequence[str] = FLAWS) -> st.SearchStrategy[Click]:
    """Some attempt."""
    return st.builds(
        Click, st.sampled_from(["page", "page", "api", "api", "shell"]), st.sampled_from(who),
        st.sampled_from(["approve", "approve", "reject", "edit", "ask", "grant"]), st.sampled_from(flaws),
    )  # fmt: skip


@dataclass
class World:
    """What all cases share: the fleet, its callers, its application and the mails that went out."""

    f: Fleet
    callers: Callers
    links: Links = field(init=False)
    app: Starlette = field(init=False)
    box: Mailbox = field(default_factory=Mailbox)
    cases: int = 0
    seen: list[str] = field(default_factory=list)
    """Every violation, as it was found."""

    def __post_init__(self) -> None:
        links = from_settings(self.f.settings)
        assert links is not None
        run, self.links = self.f.run, links
        pages = [module.routes(run.db, links, lambda *_: None, run.log) for module in (approve, answer)]
        self.app = Starlette(routes=[*api.routes(self.callers.held), *pages[0], *pages[1]])


@dataclass
class Case:
    """One task that asks, and the ways to reach it. `kind` is a tool of the papers or `ask`, `rule` its rule."""

    world: World
    kind: str
    rule: dict[str, Any]
    calls: int = 1
    item: str = field(default_factory=lambda: str(uuid4()))
    task: str = ""
    digests: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.f = self.world.f
        calls = [[self.kind, f"{self.item} {number}"] for number in range(self.calls)]
        entry = Entry(tenant="t1", source="test", key=self.item, kind="message", sender=ANN, proof="test")
        message = Message(text=json.dumps({"calls": calls, "rule": self.rule}))
        self.task = self.f.intake.open(self.f.run.registry["curious"], entry, message).task_id or ""
        OUTSIDE.deaths.clear()
        self.drain()

    @property
    def question(self) -> bool:
        """Whether it is to be answered, not decided."""
        return self.kind == "ask"

    @property
    def risk(self) -> str:
        """As the card says it."""
        return "high" if self.quorum > 1 else str(self.rule.get("risk", "medium"))

    @property
    def quorum(self) -> int:
        """How many have to approve."""
        return int(self.rule.get("quorum", 1))

    @property
    def edited(self) -> str:
        """What people write in the place of the item."""
        return f"{self.item} edited"

    def row(self) -> dict[str, Any]:
        """The newest question; its digest as it was asked is kept."""
        found = self.f.run.db.rows(
            "SELECT *, deadline <= clock_timestamp() AS late FROM approvals WHERE task_id = %(id)s ORDER BY asked DESC",
            {"id": self.task},
        )[0]
        self.digests.setdefault(found["asked"], found["digest"])
        return found

    def step(self) -> None:
        """One step; a worker that dies in it leaves its claim, which a sweep frees."""
        try:
            self.f.step(self.task)
        except Died:
            self.free()

    def drain(self) -> None:
        """Every step there is."""
        while True:
            try:
                self.f.drain(self.task)
                return
            except Died:
                self.free()

    def free(self) -> None:
        """What the sweep does to the claim of a process that is gone."""
        with self.f.run.db.connection() as connection:
            connection.execute(
                "UPDATE agent_tasks SET worker_id = NULL, claimed_until = NULL WHERE id = %s", (self.task,)
            )

    def post(self) -> None:
        """Letters go out."""
        wanted = "SELECT id::text FROM outbox WHERE task_id = %(id)s AND state = 'pending' ORDER BY n"
        for row in self.f.run.db.rows(wanted, {"id": self.task}):
            deliver(row["id"], self.f.run, {"email": self.world.box})

    # how it is sent

    async def send(self, wanted: Sequence[Click], row: dict[str, Any], working: bool) -> list[int]:
        """Everything at one moment, perhaps while a worker takes a step; the status of each."""
        doings: list[Awaitable[Any]] = [self.attempt(wish, row) for wish in wanted]
        if working:
            doings.append(asyncio.to_thread(self.step))
        return (await asyncio.gather(*doings))[: len(wanted)]

    def attempt(self, wish: Click, row: dict[str, Any]) -> Awaitable[int]:
        """One click on its way."""
        if wish.channel == "shell":
            return asyncio.to_thread(self.shell, wish, row)
        return self.page(wish, row) if wish.channel == "page" else self.api(wish, row)

    def choice(self, wish: Click) -> str:
        """What is chosen; the page can neither edit nor grant."""
        if self.question:
            return ANSWERS[wish.choice]
        return "approve" if wish.channel == "page" and wish.choice in ("edit", "grant") else wish.choice

    def shell(self, wish: Click, row: dict[str, Any]) -> int:
        """The command line."""
        choice, call, operate = self.choice(wish), row["call"], self.f.operate
        try:
            if self.question:
                reply = Reply(self.task, choice, ROOT, "override", call=call, asked=row["asked"])
                answer_question(self.f.run.db, reply)
            elif choice == "ask":
                operate.ask_back(self.task, call, WHY, by=ROOT, proof="override")
            else:
                edited = json.dumps({"item": self.edited}, separators=(",", ":")) if choice == "edit" else None
                operate.decide(
                    self.task, call, approved=choice != "reject", by=ROOT, digest=row["digest"], proof="override",
                    edited=edited, grant=Terms(1, this_task=True) if choice == "grant" else None,
                )  # fmt: skip
        except Refused as refused:
            return refused.code
        return 200

    def path(self, who: str, row: dict[str, Any], path: str = "", links: Links | None = None, **change: Any) -> str:
        """The path of somebody's link."""
        names = {"tenant": "t1", "task": self.task, "call": row["call"], "asked": row["asked"], "approver": who,
                 "expires": 2**31}  # fmt: skip
        link = Link.model_validate(names | change)
        own = ANSWER_PATH if self.question else PATH
        return (links or self.world.links).address(link, path or own).removeprefix(URL)

    async def page(self, wish: Click, row: dict[str, Any]) -> int:
        """The page behind a link."""
        change: dict[str, Any] = {"expired": {"expires": 1}, "call": {"call": row["call"] + 1}}.get(wish.flaw, {})
        if wish.flaw == "old":
            change = {"asked": min(self.digests)}
        links = FORGER if wish.flaw == "forged" else self.world.links
        other = (PATH if self.question else ANSWER_PATH) if wish.flaw == "crossed" else ""
        path = self.path(wish.who, row, other, links, **change)
        choice, link = self.choice(wish), links.read(path.rpartition("/")[2])
        with self.f.run.db.connection() as connection:
            found = approvals.newest_message(connection, _Named("t1", self.task))  # type: ignore[arg-type]
        form = {
            "decision": choice, "answer": choice, "digest": self.digest(wish, row), "seen": str(found[0]),
            "word": "WRONG" if wish.flaw == "word" else self.world.links.word(link),
            "comment": WHY if choice == "ask" else "",
        }  # fmt: skip
        return (await self.http("POST", path, data=form)).status_code

    async def api(self, wish: Click, row: dict[str, Any]) -> int:
        """The API."""
        choice, call = self.choice(wish), row["call"] + (wish.flaw == "call")
        said: dict[str, Any] = {"type": "response", "response": choice, "call_id": call}
        decided: dict[str, Any] = {"type": "approval", "call_id": call, "digest": self.digest(wish, row)}
        decided |= {"more_info": WHY} if choice == "ask" else {"approved": choice != "reject"}
        if choice == "edit":
            decided["edited_args"] = {"item": self.edited}
        if choice == "grant":
            decided["grant"] = {"hours": 1, "this_thread": True}
        body = said if self.question != (wish.flaw == "crossed") else decided
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
        return str(self.digests[min(self.digests)] if wish.flaw == "old" else row["digest"])

    async def http(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """One request to the application."""
        transport = httpx2.ASGITransport(app=self.world.app)
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
            return await client.request(method, path, **more)

    def all(self, requests: Sequence[tuple[str, str]]) -> list[httpx2.Response]:
        """All of these at one moment."""

        async def send() -> list[httpx2.Response]:
            return list(await asyncio.gather(*(self.http(method, path) for method, path in requests)))

        return asyncio.run(send())

    def sql(self, what: str, **names: Any) -> int:
        """Change rows of this case, as time does; how many there were."""
        with self.f.run.db.connection() as connection:
            return connection.execute(what, {"id": self.task, "asked": max(self.digests), **names}).rowcount

    def key(self) -> str:
        """A key of its own."""
        return str(uuid7())


@dataclass(frozen=True)
class _Named:
    tenant: str
    task: str
