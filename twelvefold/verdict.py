"""The verdict on a call: may it run, and if a person has to say so, who, how many, until when, and what else then.

All of it is data. It is stored with the question and bound by its digest, so what a card shows is what is executed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict

from .canonical import canonical, sha256
from .directory import Directory
from .errors import DeclarationError

Risk = Literal["low", "medium", "high"]
AtExpiry = Literal["deny", "park", "allow"]
OPEN = ("pending", "reminded", "escalated", "more_info")
"""The states of a question that can still be decided."""
APPROVED = ("approved", "approved_with_edits")
DEADLINE, REMIND, ESCALATE = timedelta(hours=24), timedelta(hours=4), timedelta(hours=8)
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")


class Verdict(BaseModel):
    """Whether a call may run: `auto`, `ask` people, or `deny`, and why. The other fields are about `ask`.

    `quorum` different people have to approve, one of each group in `all_of` among them; one rejection is enough.
    `four_eyes`: nobody approves what they asked for or edited. `remind` and `escalate` count from the question.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["auto", "ask", "deny"]
    reason: str = ""
    target: str = ""
    risk: Risk = "medium"
    quorum: int = 1
    all_of: tuple[str, ...] = ()
    four_eyes: bool = False
    deadline: timedelta = DEADLINE
    remind: timedelta | None = REMIND
    escalate: timedelta = ESCALATE
    escalate_to: str = ""
    at_expiry: AtExpiry = "deny"
    tainted: int = 0
    """The event with text of an unproven sender, where the verdict asks because of it."""

    @property
    def rule(self) -> str:
        """What an approval of this verdict rests on, as a hash: who, how many and how surely. Wording is no part."""
        who = [self.kind, self.target.lower(), self.risk, self.quorum, list(self.all_of), self.four_eyes]
        return sha256(canonical([*who, self.escalate_to.lower()]))[:16]

    def among(self, directory: Directory) -> Verdict:
        """The same with the addresses behind each name, as the question's row keeps it."""
        change = {
            "target": directory.resolve(self.target), "escalate_to": directory.resolve(self.escalate_to),
            "all_of": tuple(directory.resolve(group) for group in self.all_of),
        }  # fmt: skip
        return self.model_copy(update=change)

    def may_decide(self, *, escalated: bool) -> tuple[str, ...]:
        """The addresses of those who may decide; empty where the rule names nobody, and whoever may approve does."""
        named = people(self.target)
        return tuple(dict.fromkeys((*named, *people(self.escalate_to)))) if named and escalated else named

    def complete(self, voters: Collection[str], everywhere: Collection[str] = ()) -> bool:
        """Whether these approvals are enough. Voters in `everywhere` stand for each group."""
        names = {name.lower() for name in voters}
        if len(names) < self.quorum:
            return False
        return bool(everywhere) or all(names & set(people(group)) for group in self.all_of)


AUTO = Verdict(kind="auto")


def ask(
    target: str = "",
    reason: str = "",
    *,
    risk: Risk = "medium",
    quorum: int = 1,
    all_of: Sequence[str] = (),
    four_eyes: bool = False,
    deadline: timedelta = DEADLINE,
    remind: timedelta | None = REMIND,
    escalate: timedelta = ESCALATE,
    escalate_to: str = "",
    at_expiry: AtExpiry = "deny",
) -> Verdict:
    """People must approve the call; `target` is who is asked. More than one of them is of high risk.

    `all_of=("ann@x, ben@x", "legal@x")`: one of each of these groups. `at_expiry`: `deny` tells the agent, `park` waits
    for an operator, `allow` lets a Read run. Raises DeclarationError for a rule that nobody can fulfil.
    """
    target = ", ".join(part for part in (target, *all_of) if part)
    quorum = max(quorum, len(all_of))
    verdict = Verdict(
        kind="ask", reason=reason, target=target, risk="high" if quorum > 1 else risk, quorum=quorum,
        all_of=tuple(all_of), four_eyes=four_eyes, deadline=deadline, remind=remind, escalate=escalate,
        escalate_to=escalate_to, at_expiry=at_expiry,
    )  # fmt: skip
    _check(verdict)
    return verdict


def deny(why: str) -> Verdict:
    """The call must not run; the model reads why."""
    return Verdict(kind="deny", reason=why)


def people(target: str) -> tuple[str, ...]:
    """The addresses that a target names, in lower case: `ann@shop.example, ben@shop.example`. Others are no people."""
    return tuple(dict.fromkeys(found.lower() for found in _ADDRESS.findall(target)))


def _check(verdict: Verdict) -> None:
    parts = [part for part in verdict.target.split(",") if part.strip()]
    most = len(people(verdict.target)) if parts and all("@" in part for part in parts) else verdict.quorum
    if not 1 <= verdict.quorum <= most:
        raise DeclarationError(
            f"quorum={verdict.quorum} of {most} people: name at least so many, as in "
            "ask('ann@shop.example, ben@shop.example', 'why', quorum=2)."
        )
    if not all(group.strip() for group in verdict.all_of):
        raise DeclarationError("all_of= holds groups of people, each a name or addresses, as 'ann@x.example, legal'.")
    if verdict.deadline <= timedelta(0):
        raise DeclarationError("deadline= is a timedelta of more than zero: how long the question stays open.")
