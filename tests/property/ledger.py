"""The oracle of the adversarial machine: what each click was answered, and at rest what was done and what is shown,
against what those who may decide wanted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.curious import ANN
from tests.property.crowd import ALLOWED, LAST, ROOT, Case, Click
from tests.property.papers import OUTSIDE
from twelvefold.events import ApprovalMoved, Decided, Returned
from twelvefold.verdict import APPROVED, OPEN

FORMER = (*APPROVED, "rejected", "answered")
AS = {"grant": "approve"}
"""A grant comes with an approval."""
Row = dict[str, Any]


class Ledger:
    """Who wanted what of which question, as far as it was taken."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.taken: dict[int, set[tuple[str, str]]] = {}

    # each click

    def valid(self, wish: Click, row: Row) -> bool:
        """Whether this click may decide the question as it stood, whatever the moment."""
        case, choice = self.case, self.case.choice(wish)
        if choice == "neither" or not self._allowed(wish, row, choice):
            return False
        if wish.channel == "shell":
            return True
        beyond = wish.channel == "page" and case.risk == "high" and case.quorum == 1 and not case.question
        return not beyond and not self._flawed(wish, row)

    def _allowed(self, wish: Click, row: Row, choice: str) -> bool:
        who, case = self.who(wish), self.case
        agrees = choice in ("approve", "edit", "grant")
        if case.rule.get("four_eyes") and agrees and who in (ANN, row["editor"]):
            return False
        if choice == "grant" and (case.risk == "high" or case.rule.get("four_eyes")):
            return False
        return who in (ROOT, *ALLOWED) or (who == LAST and row["escalated_at"] is not None)

    def _flawed(self, wish: Click, row: Row) -> bool:
        case, first = self.case, min(self.case.digests)
        if wish.flaw == "old" and wish.channel == "page":
            return bool(first != row["asked"])
        if wish.flaw == "old":
            return not case.question and case.digests[first] != row["digest"]
        harmless = ["", "role", "tenant"] if wish.channel == "page" else ["", "word"]
        if case.question:
            harmless += ["digest", "word"]
        elif case.risk == "low" and wish.channel == "page":
            harmless.append("word")
        return wish.flaw not in harmless

    def who(self, wish: Click) -> str:
        """Who is behind it."""
        return ROOT if wish.channel == "shell" else wish.who

    def judge(self, wish: Click, code: int, before: Row, after: Row, *, alone: bool, news: bool) -> str | None:
        """What is wrong with what a click was answered."""
        told, valid = f"{wish} at {before['state']} got {code}", self.valid(wish, before)
        if code >= 500:
            return f"no answer of ours: {told}"
        if code < 300:
            return self._taken(wish, before, after, told, valid)
        return self._refused(wish, code, before, told, alone=alone, news=news) if valid else None

    def _taken(self, wish: Click, before: Row, after: Row, told: str, valid: bool) -> str | None:
        choice, who = self.case.choice(wish), self.who(wish)
        same = self.same(wish, before) or self.same(wish, after)
        known = same or (choice, who) in self.taken.get(before["asked"], ())
        if valid:
            over = not _open(before) and before["asked"] == after["asked"] and not self.same(wish, before)
            self._keep(wish, before, after)
            return f"unauthorised, it was over: {told}" if over else None
        # who may decide, but not in this way, is told of an equal decision or vote that stands
        weak = wish.flaw in ("", *(("word", "role", "tenant") if wish.channel == "page" else ("word",)))
        named = who in (ROOT, *ALLOWED, *((LAST,) if before["escalated_at"] else ()))
        weak = weak or wish.channel == "shell" or (wish.flaw == "old" and not self._flawed(wish, before))
        return None if weak and named and known else f"unauthorised: {told}"

    def _keep(self, wish: Click, before: Row, after: Row) -> None:
        meant = {before["asked"]}
        if wish.channel != "page" and after["digest"] == before["digest"]:
            meant.add(after["asked"])  # asked anew in between, and shown the same: both may be meant
        for asked in meant:
            self.taken.setdefault(asked, set()).add((self.case.choice(wish), self.who(wish)))

    def _refused(self, wish: Click, code: int, before: Row, told: str, *, alone: bool, news: bool) -> str | None:
        page = wish.channel == "page" and not self.case.question
        wrong_words = page and self.case.risk != "low" and before["wrong_words"].get(wish.who, 0) >= 5
        if code not in (409, 410) and not (code == 403 and page and self.case.risk != "low"):
            return f"no answer of ours: {told}"
        if not alone:
            return None
        if _open(before):
            asked_back = self.case.choice(wish) == "ask" and before["more_info_at"] is not None
            return None if wrong_words or (page and news) or asked_back else f"lost: {told}"
        return f"not told of the same decision: {told}" if self.same(wish, before) else None

    def same(self, wish: Click, row: Row) -> bool:
        """Whether this is the decision that stands on the row."""
        choice = self.case.choice(wish)
        if self.case.question:
            return bool(choice == row["answer"])
        if choice == "edit":
            return row["edited"] is not None and row["state"] in ("approved_with_edits", "superseded")
        return bool({"approve": "approved", "grant": "approved", "reject": "rejected"}.get(choice) == row["state"])

    # at rest

    def check(self) -> None:
        """What was done and what every copy shows, against what was taken. Raises AssertionError."""
        case = self.case
        rows = case.f.run.db.rows("SELECT * FROM approvals WHERE task_id = %(id)s ORDER BY asked", {"id": case.task})
        events = case.f.events(case.task)
        self._done(rows, events)
        for row in rows:
            self._settled(row)
            moved = [event for event in events if isinstance(event, ApprovalMoved) and event.to == row["state"]]
            assert row["state"] not in FORMER or moved, "the task was not told"
        self._granted()
        self._shown(rows)
        self._told(rows)

    def _done(self, rows: Sequence[Row], events: Sequence[Any]) -> None:
        case, chosen = self.case, {}
        for seq, event in enumerate(events, 1):
            if isinstance(event, Decided) and event.tool == case.kind:
                chosen[seq] = json.loads(event.args).get("item", "")
        returned = [event.call for event in events if isinstance(event, Returned)]
        granted = [event.call for event in events if isinstance(event, ApprovalMoved) and event.grant]
        used = {row["call"]: row for row in rows if row["used_at"] is not None}
        assert len(used) == len([row for row in rows if row["used_at"] is not None]), "an approval was used twice"
        assert set(returned) >= set(used), "lost: what was approved did not happen"
        assert set(returned) <= set(used) | set(granted), "unauthorised: it happened and nobody had approved it"
        expected = []
        for call in returned:
            edits = [r for r in rows if r["call"] == call and r["edited"] and r["asked"] <= used[call]["asked"]] \
                if call in used else []  # fmt: skip
            expected.append(case.edited if edits else chosen[call])
        assert sorted(self._happened(set(chosen.values()))) == sorted(expected), "done twice, or not as decided"

    def _happened(self, items: set[str]) -> list[str]:
        case = self.case
        wanted = [*items, case.edited]
        notes = case.f.run.db.rows("SELECT text FROM notes WHERE text = ANY(%(items)s)", {"items": wanted})
        fired = [did[0] for did in OUTSIDE.did.values() if did[0] in wanted]
        assert all(len(set(did)) == 1 for did in OUTSIDE.did.values()), "one key, two effects"
        OUTSIDE.did.clear()
        return [*(row["text"] for row in notes), *fired]

    def _settled(self, row: Row) -> None:
        """The row against what was taken."""
        taken = {(AS.get(choice, choice), who) for choice, who in self.taken.get(row["asked"], ()) if choice != "ask"}
        chosen = {choice for choice, _ in taken}
        match row["state"]:
            case "approved":
                # an edit that changes nothing any more is an approval
                approvers = {who for choice, who in taken if choice in ("approve", "edit")}
                assert len(approvers) >= self.case.quorum, f"unauthorised: approved by {approvers} alone"
                assert "reject" not in chosen, "two decisions"
            case "approved_with_edits":
                assert chosen == {"edit"}, "two decisions"
            case "superseded" if row["edited"]:
                assert "edit" in chosen and "reject" not in chosen, "two decisions"
            case "stale":
                assert "reject" not in chosen, "two decisions"
            case "rejected":
                assert "reject" in chosen and "edit" not in chosen, "two decisions"
                assert self.case.quorum > 1 or chosen == {"reject"}, "two decisions"
            case "answered":
                assert {choice for choice, _ in self.taken[row["asked"]]} == {row["answer"]}, "two answers"
            case _:
                assert self.case.quorum > 1 or not chosen, "lost: a decision"
        assert (row["used_at"] is not None) == (row["state"] in APPROVED), f"lost, or used as {row['state']}"

    def _granted(self) -> None:
        case = self.case
        wanted = {who for taken in self.taken.values() for choice, who in taken if choice == "grant"}
        for grant in case.f.run.db.rows("SELECT * FROM grants WHERE task_id = %(id)s", {"id": case.task}):
            assert grant["by"] in wanted, "unauthorised: a grant that nobody gave"
            over = grant["revoked_at"] is not None and grant["used_at"] is not None
            assert not over or grant["used_at"] <= grant["revoked_at"], "unauthorised: used after it was revoked"

    def _shown(self, rows: Sequence[Row]) -> None:
        """The page of each question, against how it ended."""
        for row in rows:
            people = [*ALLOWED, *([LAST] if row["escalated_at"] else [])]
            pages = self.case.all([("GET", self.case.path(who, row)) for who in people])
            ended = "edited by" if row["edited"] else f"{row['state'].replace('_', ' ')} by"
            expected = [ended, f"{row['state'].replace('_', ' ')} by", "no longer open"]
            # what was approved as edited and not begun in time is stale like any other
            decided = row["state"] in FORMER or (row["edited"] and row["state"] != "stale")
            expected = expected[:2] if decided else expected[-1:]
            for page in pages:
                told = any(words in page.text for words in expected)
                assert row["state"] in OPEN or told, f"{row['state']} is not shown"

    def _told(self, rows: Sequence[Row]) -> None:
        """The mails of each question that is over and is not asked anew: all who got it were told, once."""
        letters = self.case.f.run.db.rows(
            "SELECT recipient, (payload ->> 'over')::int AS over,"
            " (coalesce(payload -> 'card', payload -> 'question') ->> 'asked')::int AS asked"
            "  FROM outbox WHERE task_id = %(id)s AND state = 'sent' AND channel = 'email'", {"id": self.case.task},
        )  # fmt: skip
        for row in rows:
            got = {letter["recipient"] for letter in letters if letter["asked"] == row["asked"]}
            told = [letter["recipient"] for letter in letters if letter["over"] == row["asked"]]
            anew = row["state"] == "stale" or (row["state"] == "superseded" and row["edited"])
            if row["state"] in OPEN or anew:
                assert not anew or len(told) == len(set(told)), "told twice"
                continue
            by = (row["decided_by"] or "").rpartition(", ")[2] if row["state"] in FORMER else ""
            assert sorted(told) == sorted(got - {by}), f"{row['state']}: {got} had it, {told} were told"


def _open(row: Row) -> bool:
    return row["state"] in OPEN and not row["late"]
