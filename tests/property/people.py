"""An adversarial machine about people: whatever is clicked, typed, forged, repeated or too late, at one moment and from
several channels, over the real HTTP application and several connections to one database, while workers die.

What it holds, whatever the order: nothing runs without those who may decide, nothing runs twice, no valid decision on
an open question is lost, every click after the decision is told the same, 409 or 410, and every copy shows how it
ended.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.curious import ANN, BEN
from tests.hands import due
from tests.property.crowd import ALLOWED, EVE, LAST, STRONG, Case, Click, World, clicks
from tests.property.ledger import Ledger
from tests.property.papers import OUTSIDE
from twelvefold.verdict import APPROVED, OPEN
from workers.ids import uuid7
from workers.links import ANSWER_PATH, PATH
from workers.store import claims, sweeps

TIMES = ["late", "swept", "swept", "stale", "remind_at", "escalate_at", "escalate_at"]
TROUBLES = ["die", "die before", "die after", "write", "write", "revoke"]
MOST_DEATHS = 2
"""One more, and nobody would send it again: a person would have to settle it."""


class People(RuleBasedStateMachine):
    """One task that waits for people, and people who click. `world` is set by whoever runs it."""

    world: ClassVar[World]

    @initialize(
        kind=st.sampled_from(["sign", "sign", "fire", "fire", "ask"]), calls=st.sampled_from([1, 1, 2]),
        risk=st.sampled_from(["low", "low", "medium", "high"]), quorum=st.sampled_from([1, 1, 1, 2]),
        four_eyes=st.sampled_from([False, False, True]), escalates=st.booleans(),
    )  # fmt: skip
    def asked(
        self, kind: str, risk: str = "low", quorum: int = 1, calls: int = 1, four_eyes: bool = False,
        escalates: bool = False,
    ) -> None:  # fmt: skip
        """An agent asks."""
        rule: dict[str, Any] = {"risk": "low"} if kind == "ask" else {"risk": risk, "quorum": quorum}
        if kind != "ask":
            rule |= {"four_eyes": four_eyes, **({"escalate_to": "nobody"} if escalates else {})}
        self.world.cases += 1
        self.case = Case(self.world, kind, rule, calls)
        self.ledger, self.deaths = Ledger(self.case), 0
        self.news = self.broken = self.posted = False
        self.case.row()

    # what people do

    def clicked(self, wanted: list[Click], working: bool) -> None:
        """Some clicks at one moment, perhaps while a worker takes a step."""
        case, ledger = self.case, self.ledger
        before = case.row()
        codes = asyncio.run(case.send(wanted, before, working))
        after, alone = case.row(), len(wanted) == 1 and not working
        wrong = [
            ledger.judge(wish, code, before, after, alone=alone, news=self.news)
            for wish, code in zip(wanted, codes, strict=True)
        ]
        self.broken = any(wrong)
        self.world.seen += filter(None, wrong)
        assert not self.broken, wrong

    @rule(wanted=st.lists(clicks(), min_size=2, max_size=3), working=st.booleans())
    def click_together(self, wanted: list[Click], working: bool) -> None:
        """Several at one moment."""
        self.clicked(wanted, working)

    @rule(wish=clicks(), working=st.sampled_from([False, False, True]))
    def click(self, wish: Click, working: bool) -> None:
        """One."""
        self.clicked([wish], working)

    @rule(wish=clicks(flaws=[""]), again=clicks(flaws=[""]))
    def click_twice(self, wish: Click, again: Click) -> None:
        """One after the other, with nothing wrong about them but perhaps who clicks."""
        self.clicked([wish], False)
        self.clicked([again], False)

    @rule(wish=clicks(flaws=STRONG))
    def click_wrong(self, wish: Click) -> None:
        """One that is flawed."""
        self.clicked([wish], False)

    @rule(
        channel=st.sampled_from(["page", "api"]), who=st.sampled_from(ALLOWED),
        choice=st.sampled_from(["approve", "reject"]), flaw=st.sampled_from(["old", "digest", "digest"]),
    )  # fmt: skip
    def click_stale_card(self, channel: str, who: str, choice: str, flaw: str) -> None:
        """Somebody who may decide clicks on a card that shows something else."""
        self.clicked([Click(channel, who, choice, flaw)], False)

    @rule(who=st.sampled_from([ANN, BEN, EVE, LAST]), method=st.sampled_from(["GET", "HEAD"]))
    def look(self, who: str, method: str) -> None:
        """Whoever opens links changes nothing."""
        before = self.case.row()
        found = self.case.all([(method, self.case.path(who, before, path)) for path in (PATH, ANSWER_PATH)])
        assert self.case.row() == before and 500 not in [answer.status_code for answer in found]

    # what the world does: which of it fits depends on who was quicker, so each looks for itself

    @rule()
    def work(self) -> None:
        """A worker does what there is."""
        self.case.drain()
        self.news = False
        self.case.row()

    @rule()
    def post(self) -> None:
        """Mails go out."""
        self.posted = True
        self.case.post()

    @rule(what=st.sampled_from(TIMES))
    def pass_time(self, what: str) -> None:
        """A time is over: the row's, with or without a sweep that sees it, or that of the next letter."""
        row = self.case.row()
        if what == "late" and row["state"] in OPEN:
            self._row("deadline = clock_timestamp() - interval '1 s'")
        elif what == "stale" and row["state"] in APPROVED and row["used_at"] is None:
            self._row("valid_until = clock_timestamp() - interval '1 s'")
        elif what == "swept" and row["late"] and self._waits():
            due(self.case.f, self.case.task)
            self.work()
        elif what.endswith("_at") and row["state"] in OPEN and self._waits() and self._over(what):
            assert sweeps.make_due(self.case.f.run.db) == 1
            self.work()

    @rule(what=st.sampled_from(TROUBLES))
    def trouble(self, what: str) -> None:
        """A worker dies before anything of its step is committed, or in the middle of an effect; somebody writes, so
        that who saw an older card has to look again; a grant is revoked.
        """
        case = self.case
        if what == "die" and case.f.row(case.task)["status"] == "ready":
            held = claims.claim(case.f.run.db, case.task, uuid7(), case.f.run.registry.known, 60.0)
            assert held is not None and case.f.step(case.task) == "nothing"
            claims.release(case.f.run.db, held, soon=True)
        elif what.startswith("die ") and self.deaths < MOST_DEATHS:
            self.deaths += 1
            OUTSIDE.deaths.append(what.removeprefix("die "))
        elif what == "write" and case.row()["state"] in OPEN and not self.news:
            case.f.intake.message(case.task, source="test", key=case.key(), text="wait", sender="x", proof="test")
            self.news = True
        elif what == "revoke":
            for grant in case.f.run.db.rows("SELECT id::text FROM grants WHERE task_id = %(id)s", {"id": case.task}):
                case.f.operate.revoke(grant["id"], by=ANN)

    def _waits(self) -> bool:
        return bool(self.case.f.row(self.case.task)["status"] == "waiting")

    def _row(self, what: str) -> None:
        self.case.sql(f"UPDATE approvals SET {what} WHERE task_id = %(id)s AND asked = %(asked)s")

    def _over(self, name: str) -> int:
        return self.case.sql(
            "UPDATE agent_tasks SET due_at = clock_timestamp() - interval '1 s',"
            " state = jsonb_set(state, %(path)s, to_jsonb(clock_timestamp() - interval '1 s'))"
            " WHERE id = %(id)s AND state #>> %(path)s IS NOT NULL", path=f"{{call,{name}}}",
        )  # fmt: skip

    def teardown(self) -> None:
        """Everything comes to rest; then count what was done, and look at every copy."""
        if not hasattr(self, "case") or self.broken:
            return
        try:
            self.case.drain()
            if self.posted:
                self.case.post()
            self.ledger.check()
        except AssertionError as error:
            self.world.seen.append(str(error))
            raise
