"""The answers that say no, in one place: what happened, what was expected, what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from triggers.problem import Problem
from workers.store.tokens import Role

RETRY_AFTER = {"Retry-After": "5"}
MOST_ERRORS = 10


def no_token(error: str = "") -> Problem:
    """401: nobody is known by what was sent."""
    challenge = 'Bearer realm="twelvefold"' + (f', error="{error}"' if error else "")
    return Problem(
        401,
        "No valid token",
        "Send the header `Authorization: Bearer tf_...` exactly once, with a token that has not ended. "
        "An operator makes one: twelvefold token new NAME --role requester",
        {"WWW-Authenticate": challenge},
    )


def no_role(roles: Iterable[Role]) -> Problem:
    """403: known, but without the right."""
    wanted = " or ".join((*roles, "admin"))
    return Problem(
        403,
        "Role missing",
        f"This needs a token with the role {wanted}.",
        {"WWW-Authenticate": 'Bearer realm="twelvefold", error="insufficient_scope"'},
    )


def not_its_agent(agent: str) -> Problem:
    """403: the token is for other agents."""
    return Problem(403, "Not your agent", f"This token may not use the agent {agent}.")


def no_thread() -> Problem:
    """404, and the same for what is another tenant's: its existence is not told."""
    what = "There is no thread of this id. `GET /thread` lists those you may see."
    return Problem(404, "Unknown thread", what, error="Unknown thread")


def bad(title: str, detail: str, **members: Any) -> Problem:
    """400: the request does not fit."""
    return Problem(400, title, detail, **members)


def key_taken() -> Problem:
    """409: the Idempotency-Key belongs to a request that said something else."""
    return Problem(
        409,
        "Idempotency-Key used before",
        "Another request had this key and said something else. Give each new request a key of its own.",
        code="idempotency_key_used",
    )


def unfit(what: str, error: ValidationError, **members: Any) -> Problem:
    """400 that names each member that is wrong, never its value."""
    found = [
        {"member": ".".join(map(str, item["loc"])) or "(whole)", "problem": item["msg"]}
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:MOST_ERRORS]
    ]
    told = "; ".join(f"{each['member']}: {each['problem']}" for each in found)
    return Problem(400, what, f"{told}.", errors=found, **members)


def busy(why: str) -> Problem:
    """503: nothing was stored, trying again helps."""
    return Problem(503, "Not now", f"{why} Nothing was stored. Send it again after 5 seconds.", RETRY_AFTER)


def our_fault() -> Problem:
    """500: what went wrong is in our log, by its kind."""
    return Problem(500, "Our own fault", "This should not have happened. An operator finds its kind in the log.")
