"""Grants: an approval that holds for more than one call, for a time, until somebody revokes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from .verdict import Verdict


class Grant(BaseModel):
    """Whoever `by` is approved calls of a tool whose arguments have the members of `pattern`, until a time.

    It rests on the rule of the call it was given with (`Verdict.rule`): a call that other people would have to approve
    is none of its calls. `task` is the only one it holds for, or nothing.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    by: str
    tool: str
    task: str | None
    pattern: dict[str, Any]
    rule: str
    until: datetime

    def covers(self, task: str, tool: str, args: str, rule: str, now: datetime) -> bool:
        """Whether this call needs no approval of its own."""
        if (self.tool, self.rule) != (tool, rule) or self.task not in (None, task) or self.until <= now:
            return False
        given = json.loads(args)
        return all(name in given and given[name] == value for name, value in self.pattern.items())


def grantable(verdict: Verdict) -> bool:
    """Whether an approval of this verdict may hold for other calls: not where each is to be looked at by itself."""
    alone = verdict.quorum == 1 and not verdict.all_of and not verdict.four_eyes
    return verdict.kind == "ask" and verdict.risk != "high" and alone


def covering(
    grants: Sequence[Grant], verdict: Verdict, *, task: str, tool: str, args: str, now: datetime
) -> Grant | None:
    """The first grant that covers the call; None when it has to be asked about."""
    return next((grant for grant in grants if grant.covers(task, tool, args, verdict.rule, now)), None)
